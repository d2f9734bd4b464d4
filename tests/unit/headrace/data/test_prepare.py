"""Rows become prompts: presets, ids, the held-out split, templates; a bad row is named before anything is written."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from headrace.cli.train import in_words
from headrace.config.data import DataTable
from headrace.data.prepare import LengthLimits, PreparedData, as_json, from_json, prepare
from headrace.data.prepare_examples import prepare_examples
from headrace.model.tiny_models import Shape, bpe_tokenizer, character_tokenizer, write_model
from headrace.services.orchestrator.settings import EvalTable
from headrace.wire.errors import ConfigError, DataError

TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_model(folder, character_tokenizer("0123456789+="), Shape(layers=1, hidden=8), seed=0)
    return folder


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    write_model(
        folder, bpe_tokenizer(iter(["user: add two numbers"]), vocab_size=300), Shape(layers=1, hidden=8), seed=0
    )
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": TEMPLATE}))
    return folder


def jsonl(folder: Path, *rows: Any) -> str:
    path = folder / "p.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def run(
    folder: Path, model: Path, path: str, *, longest: int = 50, seed: int = 0, **table: Any
) -> tuple[PreparedData, list[dict[str, Any]], list[dict[str, Any]]]:
    limits = LengthLimits(max_prompt_tokens=longest, vocab_size=1000, seed=seed)
    found = prepare(DataTable(path=path, **table), model, limits, folder)
    return found, *(pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("prompts", "eval"))


def refusal(folder: Path, model: Path, path: str, **table: Any) -> str:
    out = folder / "told"
    out.mkdir(exist_ok=True)
    with pytest.raises((DataError, ConfigError)) as caught:
        run(out, model, path, **table)
    assert not list(out.iterdir())
    return str(caught.value)


SUMS = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(20)]


def test_each_evaluation_set_has_its_own_rows_or_those_held_out(tmp_path: Path, model: Path) -> None:
    training = jsonl(tmp_path, *SUMS)
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"q": "7+7=", "answer": "14", "id": "seven"}) + "\n")
    limits = LengthLimits(max_prompt_tokens=50, vocab_size=1000, seed=0)
    evals = (
        EvalTable(name="b", path=str(other), columns={"prompt": "q"}),
        EvalTable(name="a"),
    )
    found = prepare(DataTable(path=training, eval_size=4), model, limits, tmp_path, evals=evals)
    rows = pq.read_table(tmp_path / "eval.parquet").to_pylist()
    assert found.eval_prompts == 5 and [row["set"] for row in rows] == ["b", *"aaaa"]
    assert (rows[0]["text"], rows[0]["sample_id"]) == ("7+7=", "seven")
    with pytest.raises(ConfigError, match=r"\[\[eval\]\] a has no prompts: give path or split"):
        prepare(DataTable(path=training), model, limits, tmp_path, evals=evals)


def test_plain_rows_are_tokenized_with_their_columns_and_a_content_id(tmp_path: Path, model: Path) -> None:
    found, rows, held_out = run(
        tmp_path, model, jsonl(tmp_path, {"prompt": "12+3=", "answer": 15, "level": {"a": [1]}})
    )
    assert (found.prompts, found.eval_prompts, found.longest_prompt, found.stop_token_ids) == (1, 0, 5, (1,))
    assert rows[0]["token_ids"] == [3, 4, 12, 5, 13] and rows[0]["text"] == "12+3="
    assert json.loads(rows[0]["columns"]) == {"answer": 15, "level": {"a": [1]}}
    assert len(rows[0]["sample_id"]) == 16 and held_out == []
    schema = pq.read_schema(tmp_path / "prompts.parquet")
    assert schema.field("token_ids").type == pa.list_(pa.int32()) and schema.field("sample_id").type == pa.string()
    assert from_json(as_json(found)) == found


def test_ids_are_given_or_derived_from_content_and_always_unique(tmp_path: Path, model: Path) -> None:
    same = {"prompt": "1+1=", "answer": "2"}
    _, rows, _ = run(tmp_path, model, jsonl(tmp_path, same, {**same, "id": "mine"}, same, {**same, "id": 7}, same))
    ids = [row["sample_id"] for row in rows]
    assert ids[1] == "mine" and ids[3] == "7"
    assert (ids[2], ids[4]) == (f"{ids[0]}-2", f"{ids[0]}-3")
    message = refusal(tmp_path, model, jsonl(tmp_path, {**same, "id": 1}, {**same, "id": "1"}))
    assert message == 'p.jsonl:2: id "1" was already given at p.jsonl:1'


def test_the_held_out_split_depends_on_seed_and_content_only_and_leaks_nothing(tmp_path: Path, model: Path) -> None:
    path = jsonl(tmp_path, *SUMS, SUMS[3], SUMS[4])
    found, rows, held_out = run(tmp_path, model, path, eval_size=19)
    texts, held = {row["text"] for row in rows}, {row["text"] for row in held_out}
    assert (len(texts), len(held)) == (1, 19) and not texts & held
    assert found.prompts + found.eval_prompts + found.dropped_duplicates == 22 and found.dropped_duplicates >= 1
    _, _, again = run(tmp_path, model, jsonl(tmp_path, *reversed(SUMS)), eval_size=19)
    assert {row["text"] for row in again} == held
    _, _, other = run(tmp_path, model, path, eval_size=19, seed=1)
    assert {row["text"] for row in other} != held
    assert "leaves nothing to train on" in refusal(tmp_path, model, path, eval_size=20)


def test_bad_rows_are_all_named_with_line_and_column(tmp_path: Path, model: Path) -> None:
    path = jsonl(
        tmp_path,
        SUMS[0],
        '{"prompt": "1+1="',
        "[1]",
        "",
        {"answer": "3"},
        {"prompt": "", "answer": "3"},
        {"prompt": 5, "answer": "3"},
        {"prompt": None, "answer": "3"},
        {"prompt": "1", "answer": "1", "id": 1.5},
    )
    lines = refusal(tmp_path, model, path).splitlines()
    assert lines[0].startswith("p.jsonl:2: not valid JSON: Expecting ',' delimiter at column")
    assert lines[1] == "p.jsonl:3: must be an object with named columns, not list"
    assert lines[2].startswith('p.jsonl:5: there is no column "prompt" (prompt); the row has: answer; name it with')
    assert lines[3] == 'p.jsonl:6: column "prompt": the prompt is empty'
    assert lines[4] == 'p.jsonl:7: column "prompt": a prompt must be text or a list of messages, not a int'
    assert lines[5] == "... and 2 more"


def test_an_overlong_prompt_is_an_error_or_dropped_and_counted(tmp_path: Path, model: Path) -> None:
    path = jsonl(tmp_path, SUMS[0], {"prompt": "123456+1=", "answer": "1"})
    message = refusal(tmp_path, model, path, longest=6)
    assert message.startswith("p.jsonl:2: the prompt has 9 tokens, but at most 6 fit")
    found, rows, _ = run(tmp_path, model, path, longest=6, overlong="drop")
    assert (found.dropped_overlong, len(rows)) == (1, 1)
    assert "no prompt is left" in refusal(tmp_path, model, path, longest=1, overlong="drop")


VERL = {
    "data_source": "sums",
    "prompt": [{"role": "user", "content": "1+1="}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 0},
}


@pytest.mark.parametrize(
    ("preset", "row", "text", "columns"),
    [
        ("verl", VERL, "user:1+1=\n>", {"answer": "2", "data_source": "sums"}),
        ("openrlhf", {"input": "1+1=", "label": "2"}, "user:1+1=\n>", {"answer": "2", "label": "2"}),
        ("trl", {"prompt": "1+1=", "solution": "2", "n": 1}, "1+1=", {"answer": "2", "solution": "2", "n": 1}),
        ("trl", {"prompt": VERL["prompt"], "answer": "2"}, "user:1+1=\n>", {"answer": "2"}),
        (
            "messages",
            {"messages": [{"role": "system", "content": "s"}, *VERL["prompt"], {"role": "assistant", "content": "2"}]},
            "system:s\nuser:1+1=\n>",
            {"answer": "2"},
        ),
        ("plain", {"prompt": "1+1=", "answer": "2"}, "user:1+1=\n>", {"answer": "2"}),
    ],
)
def test_each_preset_reads_its_rows(
    tmp_path: Path, chat_model: Path, preset: str, row: dict[str, Any], text: str, columns: dict[str, Any]
) -> None:
    _, rows, _ = run(tmp_path, chat_model, jsonl(tmp_path, row), preset=preset)
    assert rows[0]["text"] == text
    found = json.loads(rows[0]["columns"])
    assert found | columns == found


def test_rewards_get_messages_only_of_message_prompts_and_people_always_see_them(
    tmp_path: Path, model: Path, chat_model: Path
) -> None:
    row = {"prompt": VERL["prompt"], "answer": "2"}
    _, rows, _ = run(tmp_path, chat_model, jsonl(tmp_path, row), system="be kind")
    asked = [{"role": "system", "content": "be kind"}, *VERL["prompt"]]
    assert json.loads(rows[0]["columns"]) == {"answer": "2", "prompt_messages": asked}
    assert json.loads(rows[0]["messages"]) == asked
    _, rows, _ = run(tmp_path, chat_model, jsonl(tmp_path, {"prompt": "hi"}))
    assert json.loads(rows[0]["columns"]) == {}
    assert json.loads(rows[0]["messages"]) == [{"role": "user", "content": "hi"}]
    _, rows, _ = run(tmp_path, model, jsonl(tmp_path, SUMS[0]))
    assert rows[0]["messages"] is None
    reserved = jsonl(tmp_path, {"prompt": "hi", "prompt_messages": []})
    assert "is reserved; rename the column" in refusal(tmp_path, model, reserved)


def changed(folder: Path, name: str, **values: Any) -> None:
    """A `None` takes the key out."""
    file = folder / name
    whole = json.loads(file.read_text()) | values
    file.write_text(json.dumps({key: value for key, value in whole.items() if value is not None}))


@pytest.mark.parametrize(
    ("generation", "config", "stops"),
    [
        ({"eos_token_id": [1, 3]}, {"eos_token_id": [1, 5]}, (1, 3)),
        (None, {"eos_token_id": [1, 5]}, (1, 5)),
        (None, {"eos_token_id": 5}, (1, 5)),
        ({}, {"eos_token_id": None, "text_config": {"eos_token_id": [0]}}, (0, 1)),
        ({"eos_token_id": []}, {"eos_token_id": 5}, (1, 5)),
        (None, {"eos_token_id": None}, (1,)),
    ],
)
def test_stop_tokens_equal_those_of_transformers(
    tmp_path: Path, model: Path, generation: dict[str, Any] | None, config: dict[str, Any], stops: tuple[int, ...]
) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "m"))
    (folder / "generation_config.json").unlink()
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    changed(folder, "config.json", **config)
    assert run(tmp_path, folder, jsonl(tmp_path, SUMS[0]))[0].stop_token_ids == stops


def test_a_model_without_a_stop_token_is_rejected_at_every_stage(tmp_path: Path, model: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "m"))
    for name in ("tokenizer_config.json", "config.json", "generation_config.json"):
        changed(folder, name, eos_token=None, eos_token_id=None)
    assert "there is no end token" in refusal(tmp_path, folder, jsonl(tmp_path, SUMS[0]), chat_template="never")
    limits = LengthLimits(max_prompt_tokens=9, vocab_size=99, seed=0)
    with pytest.raises(ConfigError, match="there is no end token"):
        prepare_examples(DataTable(path=jsonl(tmp_path, SUMS[0])), "sft", folder, limits, tmp_path)
    changed(folder, "generation_config.json", eos_token_id="<end>")
    assert '"eos_token_id" must be the number of a token' in refusal(tmp_path, folder, jsonl(tmp_path, SUMS[0]))


@pytest.mark.parametrize("texts", [("1+1=", "<end>1+1=", "<end><end>1+1="), ("<end>1+1=",)])
def test_a_doubled_bos_token_is_removed_from_prompts_and_counted(
    tmp_path: Path, model: Path, texts: tuple[str, ...]
) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "m"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing("<end> $A", special_tokens=[("<end>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    changed(folder, "tokenizer_config.json", bos_token="<end>")
    rows = [{"prompt": text, "completion": "2"} for text in texts]
    found, prompts, _ = run(tmp_path, folder, jsonl(tmp_path, *rows), chat_template="never")
    limits = LengthLimits(max_prompt_tokens=99, vocab_size=99, seed=0)
    path = jsonl(tmp_path, *rows)
    examples = prepare_examples(DataTable(path=path, chat_template="never"), "sft", folder, limits, tmp_path)
    learned = pq.read_table(tmp_path / "examples.parquet").to_pylist()
    assert {tuple(row["token_ids"]) for row in prompts} == {tuple(row["prompt_ids"]) for row in learned}
    assert [row["token_ids"][:2] for row in prompts] == [[1, 3]] * len(texts)
    marked = sum(text.startswith("<end>") for text in texts)
    assert found.begun_twice == examples.begun_twice == marked and "beginning-of-text" in in_words(found)
