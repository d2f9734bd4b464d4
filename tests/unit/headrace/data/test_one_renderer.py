"""A prompt is the same tokens for RL, for an evaluation and as the context of an example: those of transformers."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.data import DataTable
from headrace.data.example_render import ExampleRenderer
from headrace.data.examples import dialogue_of, ranked_pair_of
from headrace.data.presets import prompt_of
from headrace.data.render import PromptRenderer
from headrace.data.rows import DataRow, read_rows
from headrace.wire.errors import DataError
from tests.unit.services.environment.rendering.qwen3 import QWEN3, tokenizer_of

LLAMA = (
    "{{ bos_token }}{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MUTE = LLAMA.replace("tools or []", "[]").replace("m.tool_calls or []", "[]")
ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
USER = {"role": "user", "content": "1+1="}
BEGUN = {"role": "assistant", "content": "The answer is"}
CALLS = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}


@pytest.fixture(scope="module", params=[QWEN3, LLAMA], ids=["qwen3", "llama"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tokenizer_of(tmp_path_factory.mktemp("model"), request.param)


def rl(tokenizer: Any, row: dict[str, Any], **table: Any) -> str:
    settings = DataTable(path="p.jsonl", **table)
    prompt = prompt_of(DataRow("p.jsonl:1", row), settings)
    asked = PromptRenderer(tokenizer, settings).ask(prompt.place, prompt.content, prompt.tools)
    text = str(tokenizer.decode(asked.seen.token_ids))
    assert text == asked.seen.text
    return text


def examples(tokenizer: Any, row: dict[str, Any], **table: Any) -> list[tuple[str, str]]:
    """Prompt and answer of the row as supervised data and as a pair."""
    settings = DataTable(path="p.jsonl", **table)
    renderer = ExampleRenderer(tokenizer, settings, [tokenizer.eos_token_id])
    given = DataRow("p.jsonl:1", row | {"completion": " 2", "chosen": " 2", "rejected": " 3"})
    (dialogue,) = renderer.dialogue(dialogue_of(given, settings))
    pair = renderer.pair(ranked_pair_of(given, settings))
    ids = [(dialogue.prompt_ids, dialogue.completion_ids), (pair.prompt_ids, pair.chosen_ids)]
    return [(tokenizer.decode(prompt), tokenizer.decode(answer)) for prompt, answer in ids]


texts = st.text("1+= \n", min_size=1, max_size=4).map(lambda text: f"a{text}b")
turns = st.lists(st.tuples(texts, texts), max_size=2)


@given(
    system=st.booleans(), before=turns, asks=texts, begins=st.none() | texts, tools=st.booleans(), cut=st.integers(0, 2)
)
def test_a_conversation_is_rendered_as_transformers_does_for_every_stage(
    tokenizer: Any, system: bool, before: list[tuple[str, str]], asks: str, begins: str | None, tools: bool, cut: int
) -> None:
    messages = [{"role": "system", "content": "Be brief."}] if system else []
    for question, answer in before:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages += [{"role": "user", "content": asks}, *([{"role": "assistant", "content": begins}] if begins else [])]
    wanted = tokenizer.apply_chat_template(
        messages,
        tools=[ADD] if tools else None,
        tokenize=False,
        add_generation_prompt=not begins,
        continue_final_message=bool(begins),
    )
    parts = [{**one, "content": [part(one["content"][:cut]), part(one["content"][cut:])]} for one in messages]
    row = {"prompt": parts, "tools": json.dumps([ADD["function"]]) if cut else [ADD]} if tools else {"prompt": parts}
    assert rl(tokenizer, row) == rl(tokenizer, row | {"answer": "2"}, preset="trl") == wanted
    for prompt, answer in examples(tokenizer, row):
        assert prompt == wanted and answer.endswith("2<|im_end|>")


def test_an_answer_whose_first_token_overlaps_the_prompt_is_trained_after_the_prompt(tokenizer: Any) -> None:
    row = {"prompt": [USER, {"role": "assistant", "content": "it i"}]}
    settings = DataTable(path="p.jsonl")
    renderer = ExampleRenderer(tokenizer, settings, [tokenizer.eos_token_id])
    (one,) = renderer.dialogue(dialogue_of(DataRow("p.jsonl:1", row | {"completion": "s 46"}), settings))
    whole = tokenizer.decode([*one.prompt_ids, *one.completion_ids])
    assert tokenizer.decode(one.prompt_ids) == rl(tokenizer, row) and whole.endswith("it is 46<|im_end|>")
    assert [*one.prompt_ids, *one.completion_ids] != tokenizer(whole, add_special_tokens=False)["input_ids"]


def part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def test_only_the_preset_of_chat_logs_takes_an_assistants_last_message_as_the_reference(tokenizer: Any) -> None:
    row = {"prompt": [USER, BEGUN], "messages": [USER, BEGUN]}
    for preset in ("plain", "trl", "verl"):
        found = prompt_of(DataRow("p.jsonl:1", row), DataTable(path="p", preset=preset))
        assert "answer" not in found.columns and found.content == (USER, BEGUN)
    found = prompt_of(DataRow("p.jsonl:1", row), DataTable(path="p", preset="messages"))
    assert found.columns["answer"] == BEGUN["content"] and found.content == (USER,)


IMAGE = {"type": "image_url", "image_url": {"url": "x.png"}}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": [USER, CALLS]}, "calls of tools, which no answer can continue"),
        ({"prompt": [{"role": "user", "content": [part("a"), IMAGE]}]}, "message 1 has a part of the type 'image_url'"),
        ({"prompt": [{"role": "user", "content": [{"text": "a"}]}]}, "has a part of the type None"),
        ({"prompt": [USER, {"role": "user", "content": 5}]}, 'message 2: each message needs a "content"'),
        ({"prompt": [{**USER, "images": ["x.png"]}]}, 'message 1 has "images"'),
        ({"prompt": [USER, {**BEGUN, "function_call": {"name": "add"}}, USER]}, 'message 2 has "function_call"'),
        ({"prompt": [USER], "images": ["x.png"]}, 'column "images" cannot be read'),
        ({"prompt": "1+1=", "audio": {"bytes": b"x"}}, 'column "audio" cannot be read'),
        ({"prompt": [USER], "tools": ["add"]}, 'column "tools": tool 1 has not the form'),
        ({"prompt": ["1+1=", "2+3="]}, "a list of something else; a file of columns becomes one of rows"),
    ],
)
def test_row_fields_that_the_model_cannot_use_are_rejected_by_name(
    tokenizer: Any, row: dict[str, Any], words: str
) -> None:
    for stage in (rl, examples):
        with pytest.raises(DataError) as caught:
            stage(tokenizer, row)
        assert str(caught.value).startswith("p.jsonl:1: ") and words in str(caught.value)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"prompt": [USER], "tools": [ADD]}, "tools"),
        ({"prompt": [USER, CALLS, USER]}, "tool_calls"),
        ({"prompt": [{"role": "developer", "content": "Be brief."}, USER]}, "messages of the role 'developer'"),
    ],
)
def test_row_fields_that_the_template_does_not_render_are_rejected(
    tmp_path: Path, row: dict[str, Any], what: str
) -> None:
    mute = tokenizer_of(tmp_path, QWEN3 if what.startswith("messages") else MUTE)
    for stage in (rl, examples):
        with pytest.raises(DataError, match=f"chat template does not write the row's {what}"):
            stage(mute, row)


def test_a_column_mapped_to_another_name_is_not_passed_to_the_template(tokenizer: Any) -> None:
    row = {"prompt": [USER], "tools": ["hammer"], "images": 3}
    columns = {"toolbox": "tools", "images": ""}
    assert rl(tokenizer, row, columns=columns) == rl(tokenizer, {"prompt": [USER]})
    found = prompt_of(DataRow("p.jsonl:1", row), DataTable(path="p", columns=columns)).columns
    assert found["toolbox"] == ["hammer"] and "images" not in found


def test_a_parquet_file_gives_the_same_prompt(tokenizer: Any, tmp_path: Path) -> None:
    other = {"prompt": [{**USER, "name": "x"}], "tools": [{**ADD, "strict": True}]}
    row = {"prompt": [USER, BEGUN], "tools": [ADD]}
    pq.write_table(pa.Table.from_pylist([row, other]), tmp_path / "p.parquet")
    first, _ = read_rows(str(tmp_path / "p.parquet"), subset="", split="")
    assert isinstance(first, DataRow)
    settings = DataTable(path="p")
    prompt = prompt_of(first, settings)
    seen = PromptRenderer(tokenizer, settings).ask("p", prompt.content, prompt.tools).seen
    assert sorted(seen.text) == sorted(rl(tokenizer, row))


def test_messages_as_json_text_are_the_messages_and_other_text_stays_text(tokenizer: Any) -> None:
    renderer = PromptRenderer(tokenizer, DataTable(path="x"))
    row = DataRow("here", {"prompt": [USER], "answer": "2"})
    written = DataRow("here", {"prompt": json.dumps([USER]), "answer": "2"})
    both = [prompt_of(one, DataTable(path="x")) for one in (row, written)]
    first, second = (renderer.ask(one.place, one.content, one.tools).seen.text for one in both)
    assert first == second
    assert prompt_of(DataRow("here", {"prompt": "[1, 2]", "answer": "2"}), DataTable(path="x")).content == "[1, 2]"
