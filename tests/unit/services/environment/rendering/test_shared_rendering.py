"""A conversation has the same ids, masks and segments as rows of data and as an episode of the same answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from headrace.config.data import DataTable
from headrace.data.example_render import ExampleRenderer, RenderedExample
from headrace.data.examples import dialogue_of
from headrace.data.rows import DataRow
from headrace.model.tiny_models import END, PAD
from headrace.services.environment.child.tools import make_tool
from headrace.services.environment.rendering.conversation import TemplateRenderer
from headrace.wire.contracts import FinishReason, PolicyVersion, Turn, VersionSpan, played_turns
from headrace.wire.errors import DataError
from tests.unit.services.environment.rendering.qwen3 import KEEPS_THOUGHTS, QWEN3, tokenizer_of


def add(a: int, b: int) -> int:
    """Adds two numbers, größere too."""
    return a + b


TOOLS = [make_tool(add).schema]
ARGUMENTS = {"b": 34, "a": 12}
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "12 + 34?"}]
HEARD = [[{"role": "tool", "name": "add", "content": "46"}], [{"role": "user", "content": "and é?"}], []]
SAID = [
    f'<think>\nI must add.\n</think>\n\n<tool_call>\n{{"name": "add", "arguments": {json.dumps(ARGUMENTS)}}}'
    "\n</tool_call>",
    "<think>\nDone.\n</think>\n\nit is 46",
    "<think>\nWhat?\n</think>\n\nno é",
]


def answers(arguments: object) -> list[dict[str, Any]]:
    """The same answers as a data set has them."""
    call = {"type": "function", "function": {"name": "add", "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "reasoning_content": "I must add.", "tool_calls": [call]},
        {"role": "assistant", "content": "it is 46", "reasoning_content": "Done."},
        {"role": "assistant", "content": SAID[2]},
    ]


def row(arguments: object = ARGUMENTS, tools: object = TOOLS) -> dict[str, Any]:
    messages = list(ASKED)
    for said, heard in zip(answers(arguments), HEARD, strict=True):
        messages += [said, *heard]
    return {"messages": messages, "tools": tools}


def as_examples(tokenizer: Any, values: dict[str, Any]) -> list[RenderedExample]:
    table = DataTable(path="rows.jsonl")
    renderer = ExampleRenderer(tokenizer, table, [tokenizer.eos_token_id])
    return renderer.dialogue(dialogue_of(DataRow("rows.jsonl:1", values), table))


def as_episode(
    tokenizer: Any, asked: list[Any], said: list[str], heard: list[Any], tools: list[Any]
) -> list[RenderedExample]:
    """The segments of an episode in which a policy samples each text, and then a stop token."""
    renderer, messages, seen, turns = TemplateRenderer(tokenizer), list(asked), None, []
    for text, others in zip(said, heard, strict=True):
        context = renderer.context(messages, tools, seen)
        ids = np.array([*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id], np.int32)
        answer = renderer.answer(context, ids, tools, stopped=True)
        assert answer.text == text
        span = VersionSpan(start=0, end=len(ids), version=PolicyVersion(incarnation=1, version=0))
        turns.append(
            Turn(
                context_ids=context.token_ids,
                completion_ids=ids,
                logprobs=np.zeros(len(ids), np.float32),
                finish_reason=FinishReason.STOP,
                spans=(span,),
            )
        )
        seen, messages = answer.seen, [*messages, answer.message, *others]
    played = played_turns(turns)
    ends = [*(one.start for one in played.segments[1:]), len(played.token_ids)]
    return [
        RenderedExample(
            "rows.jsonl:1",
            one.context_ids.tolist(),
            played.token_ids[one.start : end].tolist(),
            played.loss_mask[one.start : end].tolist(),
        )
        for one, end in zip(played.segments, ends, strict=True)
    ]


@pytest.mark.parametrize(("template", "segments"), [(KEEPS_THOUGHTS, 1), (QWEN3, 2)])
def test_training_examples_and_episodes_render_the_same_tokens(tmp_path: Path, template: str, segments: int) -> None:
    tokenizer = tokenizer_of(tmp_path, template)
    examples = as_examples(tokenizer, row())
    assert examples == as_episode(tokenizer, ASKED, SAID, HEARD, TOOLS)
    assert len(examples) == segments
    trained = [token for one in examples for token, flag in zip(one.completion_ids, one.trained, strict=True) if flag]
    assert tokenizer.decode(trained) == "".join(f"{text}<|im_end|>" for text in SAID)
    assert json.dumps(TOOLS[0], ensure_ascii=False) in tokenizer.decode(examples[0].prompt_ids)
    if segments == 2:  # The second one is asked without the thoughts of the first.
        assert "Done." in tokenizer.decode(examples[0].completion_ids)
        assert "Done." not in tokenizer.decode(examples[1].prompt_ids)


@pytest.mark.parametrize(
    ("arguments", "tools"),
    [(json.dumps(ARGUMENTS), TOOLS), ('{"b":34,"a":12}', TOOLS), (ARGUMENTS, json.dumps(TOOLS, indent=1))],
)
def test_arguments_and_tools_as_json_text_are_the_same_tokens(tmp_path: Path, arguments: object, tools: object) -> None:
    tokenizer = tokenizer_of(tmp_path)
    assert as_examples(tokenizer, row(arguments, tools)) == as_examples(tokenizer, row())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tools": "{"}, 'column "tools": the tools are text that is not valid JSON'),
        ({"tools": [{"function": "add"}]}, 'column "tools": tool 1 has not the form'),
        (row("{"), 'message 3, call 1: "arguments" are text that is not valid JSON'),
        (row([1]), 'message 3, call 1: "arguments" must be an object'),
        (
            {"messages": [*ASKED, {"role": "assistant", "tool_calls": [{"type": "function"}]}]},
            "message 3, call 1: give",
        ),
    ],
)
def test_a_row_that_no_template_could_render_is_refused_with_its_place(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError) as caught:
        as_examples(tokenizer_of(tmp_path), row() | change)
    assert str(caught.value).startswith("rows.jsonl:1: ") and words in str(caught.value)


def metaspace_tokenizer() -> Tokenizer:
    """Writes the first word of a text otherwise than the same word within, as that of Llama 2 does."""
    tokenizer = Tokenizer(models.BPE(unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=[PAD, END], show_progress=False)
    tokenizer.train_from_iterator(["[user] one two [assistant] three four"] * 4, trainer)
    return tokenizer


def test_text_after_a_stop_token_has_the_same_ids_as_within_the_whole(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}" + END + "{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    tokenizer = tokenizer_of(tmp_path, template, tokenizer=metaspace_tokenizer(), end=END)
    contents = ("one", "three", "two", "four")
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(contents)]
    (example,) = as_examples(tokenizer, {"messages": messages})
    whole = f"[user] one{END}[assistant] three{END}[user] two{END}[assistant] four{END}"
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    assert [*example.prompt_ids, *example.completion_ids] == ids
    template_renderer = TemplateRenderer(tokenizer)
    context = template_renderer.context(messages[:1], [], None)
    sampled = np.array(example.completion_ids[: example.trained.index(False)], np.int32)
    seen = template_renderer.answer(context, sampled, [], stopped=True).seen
    asked = template_renderer.context(messages[:3], [], seen).token_ids.tolist()
    assert asked == ids[: len(asked)] and len(asked) > len(seen.token_ids)
