"""A family's renderer keeps the prefix, reads the family's calls, and is refused where it is not that of the model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.environment.rendering.choice import conversation_renderer
from headrace.services.environment.rendering.conversation import Answer, ConversationRenderer
from headrace.wire.errors import ConfigError
from headrace.wire.rendering.chat_template import Seen
from tests.unit.services.environment.rendering.qwen3 import QWEN3, tokenizer_of
from tests.unit.services.environment.rendering.test_shared_rendering import ASKED, TOOLS

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 12, "b": 34}}\n</tool_call>'
RESULT = [{"role": "tool", "name": "add", "content": "46"}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tokenizer_of(tmp_path_factory.mktemp("qwen3"))


def said(renderer: ConversationRenderer, tokenizer: Any, messages: list[Any], text: str, seen: Any = None) -> Answer:
    context = renderer.context(messages, TOOLS, seen)
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return renderer.answer(context, np.array(ids, np.int32), TOOLS, stopped=True)


def continues(renderer: ConversationRenderer, answer: Answer, messages: list[Any]) -> bool:
    found = renderer.context(messages, TOOLS, answer.seen).token_ids
    return np.array_equal(found[: len(answer.seen.token_ids)], answer.seen.token_ids)


def test_a_family_agrees_with_its_own_template(tokenizer: Any) -> None:
    renderer = conversation_renderer("qwen3", tokenizer)
    renderer.check([])
    renderer.check(TOOLS)
    template = conversation_renderer("template", tokenizer)
    for tools in ([], TOOLS):
        wanted = template.context(ASKED, tools, None).token_ids
        np.testing.assert_array_equal(renderer.context(ASKED, tools, None).token_ids, wanted)


@pytest.mark.parametrize("odd", [f"<think>\n\n\nI add.\n</think>{CALL}", CALL, f"I add.\n\n\n{CALL}"])
def test_a_family_keeps_the_prefix_where_the_template_writes_the_turn_in_its_own_way(tokenizer: Any, odd: str) -> None:
    renderer, template = (conversation_renderer(name, tokenizer) for name in ("qwen3", "template"))
    answer = said(renderer, tokenizer, ASKED, odd)
    messages = [*ASKED, answer.message, *RESULT]
    assert continues(renderer, answer, messages)
    behind = renderer.context(messages, TOOLS, answer.seen).token_ids[len(answer.seen.token_ids) :]
    assert tokenizer.decode(behind) == (
        "\n<|im_start|>user\n<tool_response>\n46\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    of_template = said(template, tokenizer, ASKED, odd)
    goes_on = continues(template, of_template, [*ASKED, of_template.message, *RESULT])
    assert goes_on is not odd.startswith("<think>")


def test_a_new_user_message_rerenders_the_conversation_without_reasoning(tokenizer: Any) -> None:
    renderer = conversation_renderer("qwen3", tokenizer)
    answer = said(renderer, tokenizer, ASKED, "<think>\nEasy.\n</think>\n\nit is 46")
    messages = [*ASKED, answer.message, {"role": "user", "content": "and 2?"}]
    assert not continues(renderer, answer, messages)
    found = renderer.context(messages, TOOLS, answer.seen)
    template = conversation_renderer("template", tokenizer)
    np.testing.assert_array_equal(found.token_ids, template.context(messages, TOOLS, None).token_ids)
    assert "Easy" not in tokenizer.decode(found.token_ids) and "it is 46" in tokenizer.decode(found.token_ids)


def test_a_family_parses_tool_calls_and_reasoning(tokenizer: Any) -> None:
    text = f"<think>\nI add <tool_call>.\n</think>\n\nSo:\n{CALL}"
    answer = said(conversation_renderer("qwen3", tokenizer), tokenizer, ASKED, text)
    assert answer.text == text
    assert answer.said.calls == ({"name": "add", "arguments": {"a": 12, "b": 34}},) and not answer.said.malformed
    assert answer.message["reasoning_content"] == "I add <tool_call>."
    assert str(answer.message["content"]).strip() == "So:"
    (call,) = answer.message["tool_calls"]  # type: ignore[misc]
    assert call["function"] == answer.said.calls[0]


def test_reasoning_opened_by_the_prompt_is_parsed_as_reasoning(tokenizer: Any) -> None:
    ids = [
        np.array(tokenizer(text)["input_ids"], np.int32)
        for text in ("<think>\n", f"add?\n</think>\n\n{CALL}<|im_end|>")
    ]
    answer = conversation_renderer("qwen3", tokenizer).answer(Seen(ids[0]), ids[1], TOOLS, stopped=True)
    assert answer.message["reasoning_content"] == "add?" and len(answer.said.calls) == 1


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ('<tool_call>\n{"name": "add", \n</tool_call>', "its arguments are not valid JSON"),
        ('<tool_call>\n{"arguments": {}}\n</tool_call>', "it names no tool"),
        ('<tool_call>\n{"name": "add", "arguments": {}}', "it has no end"),
        ('<tool_call>\n{"name": "add", "arguments": [1]}\n</tool_call>', '"arguments" of add must be an object'),
        ('<tool_call>\n{"name": "add", "arguments": {"a": NaN}}\n</tool_call>', "a number that JSON has not"),
    ],
)
def test_a_malformed_call_is_an_error_for_the_policy_and_stays_in_the_conversation(
    tokenizer: Any, block: str, why: str
) -> None:
    renderer = conversation_renderer("qwen3", tokenizer)
    answer = said(renderer, tokenizer, ASKED, f"{CALL}\n{block}")
    assert [call["name"] for call in answer.said.calls] == ["add"]
    (error,) = answer.said.malformed
    assert error.startswith("Error: call 2 is no call of a tool: ") and why in error
    assert block in str(answer.message["content"])
    messages = [*ASKED, answer.message, *RESULT, {"role": "tool", "name": "", "content": error}]
    assert continues(renderer, answer, messages)
    anew = tokenizer.decode(renderer.context(messages, TOOLS, None).token_ids)
    assert block in anew and CALL in anew and error in anew


def test_the_familys_stop_tokens_end_a_turn(tokenizer: Any) -> None:
    stops = conversation_renderer("qwen3", tokenizer).stop_token_ids
    assert tokenizer.convert_ids_to_tokens(list(stops)) == ["<|im_end|>", "<|endoftext|>"]
    assert conversation_renderer("template", tokenizer).stop_token_ids == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qwen-3", 'no such family; did you mean "qwen3"?; there are template, deepseek-r1, '),
        ("auto", "no such family; there are template, deepseek-r1, "),
        ("qwen3-vl", "the family renders images too, and episodes are text"),
        ("llama-3", "cannot be made for the tokenizer in model.path: Special token '<|begin_of_text|>' not found"),
    ],
)
def test_an_unavailable_renderer_is_rejected_with_a_fix(tokenizer: Any, name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        conversation_renderer(name, tokenizer)
    assert str(caught.value).startswith(f"environment.renderer = {json.dumps(name)}: ") and words in str(caught.value)
    assert "template" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "tools", "words"),
    [
        (("'<|im_end|>' + '\\n' }}", "'<|im_end|>' }}"), [], "a short conversation otherwise than"),
        (("{{- tool | tojson }}", "{{- tool | tojson(indent=1) }}"), TOOLS, "with the environment's tools otherwise"),
        (('\'<tool_call>\\n{"name"', '\'<tool_call>{"name"'), TOOLS, "it has '\\n{"),
        (("<tool_response>\\n' + content", "<tool_response>' + content"), TOOLS, "it has '\\n46"),
        (
            ("<|im_start|>assistant\\n' }}{%- endif %}", "<|im_start|>assistant\\n<think>' }}{%- endif %}"),
            [],
            "'<think>'",
        ),
    ],
)
def test_a_template_that_differs_from_the_family_is_rejected_with_the_position(
    tmp_path: Path, change: tuple[str, str], tools: list[Any], words: str
) -> None:
    assert change[0] in QWEN3
    renderer = conversation_renderer("qwen3", tokenizer_of(tmp_path, QWEN3.replace(*change)))
    with pytest.raises(ConfigError) as caught:
        renderer.check(tools)
    message = str(caught.value)
    assert message.startswith('environment.renderer = "qwen3": renders ') and words in message
    assert "at token " in message and 'Set environment.renderer = "template"' in message
    if tools:  # Without tools they agree.
        renderer.check([])
