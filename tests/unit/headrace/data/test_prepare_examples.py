"""Rows of the stages on given examples become token ids: what is trained, where it ends, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.config.data import DataTable
from headrace.data.prepare import LengthLimits, as_json
from headrace.data.prepare_examples import PreparedExamples, prepare_examples
from headrace.model.tiny_models import END, Shape, bpe_tokenizer, character_tokenizer, write_model
from headrace.wire.errors import ConfigError, DataError

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}" + END + "\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
FORGETS = TEMPLATE.replace("{{ m.content }}", "{{ m.content if loop.last else m.content | replace('hm ', '') }}")
END_ID = 1


def make(folder: Path, template: str = "") -> Path:
    letters = [f"<user>{chr(code)}<assistant>" for code in range(97, 123)]
    tokenizer = bpe_tokenizer(iter(letters), vocab_size=320) if template else character_tokenizer("0123456789+=")
    write_model(folder, tokenizer, Shape(layers=1, hidden=8), seed=0)
    if template:
        file = folder / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("chat"), TEMPLATE)


def run(
    folder: Path, model: Path, stage: str, rows: list[Any], *, longest: int = 200, **table: Any
) -> tuple[PreparedExamples, list[dict[str, Any]], list[dict[str, Any]]]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    limits = LengthLimits(max_prompt_tokens=longest, vocab_size=1000, seed=0)
    found = prepare_examples(DataTable(path=str(path), **table), stage, model, limits, folder)
    return found, rows_of(folder / "examples.parquet"), rows_of(folder / "eval_examples.parquet")


def rows_of(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist() if path.exists() else []


def refusal(folder: Path, model: Path, stage: str, rows: list[Any], **table: Any) -> str:
    with pytest.raises((DataError, ConfigError)) as caught:
        run(folder, model, stage, rows, **table)
    assert not list(folder.glob("*.parquet"))
    return str(caught.value)


def text(model: Path, ids: list[int]) -> str:
    from transformers import AutoTokenizer

    return str(AutoTokenizer.from_pretrained(model).decode(ids))


def test_a_completion_of_text_is_trained_whole_and_ends_with_the_end_token(tmp_path: Path, model: Path) -> None:
    rows = [{"prompt": "1+2=", "completion": "3"}, {"prompt": "1+3=", "answer": "4"}]
    found, examples, held_out = run(tmp_path, model, "sft", rows)
    assert [row["completion_ids"][-1] for row in examples] == [END_ID] * 2
    assert [text(model, row["completion_ids"][:-1]) for row in examples] == ["3", "4"]
    assert all(row["trained"] == [True, True] for row in examples) and held_out == []
    assert (found.examples, found.longest, found.trained_tokens) == (2, 6, 4)
    assert PreparedExamples(**json.loads(as_json(found))) == found


def turns(*contents: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": content} for number, content in enumerate(contents)]


def test_only_the_answers_of_a_conversation_are_trained_up_to_their_stop_tokens(tmp_path: Path, chat: Path) -> None:
    rows = [{"messages": turns("a", "b", "c", "d")}]
    _, (row,), _ = run(tmp_path, chat, "sft", rows, preset="messages")
    assert text(chat, row["prompt_ids"]) == "<user>a<assistant>"
    trained = [token for token, flag in zip(row["completion_ids"], row["trained"], strict=True) if flag]
    assert text(chat, trained) == f"b{END}d{END}"
    context = [token for token, flag in zip(row["completion_ids"], row["trained"], strict=True) if not flag]
    assert text(chat, context) == "\n<user>c<assistant>"


def test_a_template_that_rewrites_earlier_answers_gives_a_sequence_for_each(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = make(tmp_path_factory.mktemp("forgets"), FORGETS)
    _, rows, _ = run(tmp_path, model, "sft", [{"messages": turns("a", "hm b", "c", "hm d")}], preset="messages")
    assert [text(model, row["prompt_ids"]) for row in rows] == [
        "<user>a<assistant>",
        f"<user>a<assistant>b{END}\n<user>c<assistant>",
    ]
    assert [text(model, row["completion_ids"]) for row in rows] == [f"hm b{END}", f"hm d{END}"]


def test_messages_before_the_first_answer_of_a_completion_are_context(tmp_path: Path, chat: Path) -> None:
    rows = [{"prompt": turns("a"), "completion": turns("b", "c")}]
    _, (row,), _ = run(tmp_path, chat, "sft", rows)
    assert text(chat, row["prompt_ids"]) == "<user>a<user>b<assistant>"
    assert text(chat, row["completion_ids"]) == f"c{END}"


def test_an_answer_that_does_not_continue_the_beginning_is_refused(tmp_path: Path, chat: Path) -> None:
    rows = [{"prompt": turns("a", "b"), "completion": turns("c", "d")}]
    assert "rows.jsonl:1: the prompt ends with an assistant's" in refusal(tmp_path, chat, "sft", rows)


def test_a_pair_has_one_prompt_two_answers_and_a_margin(tmp_path: Path, model: Path, chat: Path) -> None:
    rows = [
        {"prompt": "1+2=", "chosen": "3", "rejected": "12", "margin": 2},
        {"prompt": "1=", "chosen": "1", "rejected": "2"},
    ]
    found, (first, second), _ = run(tmp_path, model, "dpo", rows)
    assert text(model, first["prompt_ids"]) == "1+2="
    assert [text(model, first[f"{side}_ids"]) for side in ("chosen", "rejected")] == [f"3{END}", f"12{END}"]
    assert (first["margin"], second["margin"], found.longest) == (2.0, 0.0, 7)
    whole = [{"chosen": turns("a", "b", "c", "d"), "rejected": turns("a", "b", "c", "e")}]
    _, (row,), _ = run(tmp_path, chat, "reward_model", whole)
    assert text(chat, row["prompt_ids"]) == f"<user>a<assistant>b{END}\n<user>c<assistant>"
    assert [text(chat, row[f"{side}_ids"]) for side in ("chosen", "rejected")] == [f"d{END}", f"e{END}"]


TOOLED = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}" + TEMPLATE


@pytest.mark.parametrize("stage", ["sft", "dpo", "reward_model"])
@pytest.mark.parametrize("tools", [[{"name": "z"}], '[{"name": "z"}]'], ids=["a list", "JSON"])
def test_a_rows_tools_are_given_to_the_template_at_every_stage(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, stage: str, tools: object
) -> None:
    model = make(tmp_path_factory.mktemp("tooled"), TOOLED)
    row = {"prompt": turns("a"), "completion": "b", "chosen": turns("", "b")[1:], "rejected": turns("", "c")[1:]}
    _, (found,), _ = run(tmp_path, model, stage, [row | {"tools": tools}])
    assert text(model, found["prompt_ids"]) == "z <user>a<assistant>"


def test_held_out_examples_share_no_prompt_with_training_examples(tmp_path: Path, model: Path) -> None:
    rows = [{"prompt": f"{n}=", "chosen": "1", "rejected": str(m)} for n in range(20) for m in (2, 3)]
    found, train, held_out = run(tmp_path, model, "dpo", rows, eval_size=5)
    prompts = [{tuple(row["prompt_ids"]) for row in some} for some in (train, held_out)]
    assert not prompts[0] & prompts[1] and len(held_out) == len(prompts[1]) == 5
    assert (found.examples, found.eval_examples, found.dropped_duplicates) == (30, 5, 5)


@pytest.mark.parametrize(
    ("stage", "row", "wanted"),
    [
        ("sft", {"prompt": "1="}, 'there is no column "completion"'),
        ("sft", {"messages": [{"role": "user", "content": "1"}]}, "there is nothing to learn"),
        ("sft", {"prompt": "1=", "completion": [{"role": "assistant", "content": "1"}]}, "no chat template"),
        ("dpo", {"prompt": "1=", "chosen": "1", "rejected": "1"}, "are the same"),
        ("dpo", {"chosen": "1", "rejected": "2"}, 'there is no column "prompt"'),
        ("dpo", {"prompt": "1=", "chosen": "1", "rejected": "2", "margin": -1}, "must be a number of 0 or more"),
        ("dpo", {"chosen": turns("1", "2"), "rejected": turns("3", "4")}, "differ in their last message only"),
        ("sft", {"prompt": "1=", "completion": "1", "tools": [{"name": "z"}]}, "which only a chat template renders"),
        ("sft", {"prompt": "1=", "completion": "1", "tools": "hammer"}, "the tools are text that is not valid JSON"),
        ("sft", {"prompt": "1" * 300 + "=", "completion": "1"}, "has 303 tokens, but at most 200 fit"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(
    tmp_path: Path, model: Path, stage: str, row: dict[str, Any], wanted: str
) -> None:
    good = {"prompt": "1=", "completion": "1", "chosen": "1", "rejected": "2"}
    message = refusal(tmp_path, model, stage, [good, row])
    assert message.startswith("rows.jsonl:2:") and wanted in message
