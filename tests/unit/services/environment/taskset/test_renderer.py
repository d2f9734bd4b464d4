"""The model's own template as a renderer of the package `renderers`."""

from types import ModuleType
from typing import Any

import pytest

from tests.unit.services.environment.rendering.qwen3 import QWEN3, tokenizer_of

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
ASKED = [{"role": "user", "content": "12 + 34?"}]
SAID = 'I add.<tool_call>\n{"name":  "add", "arguments": {"a": 12}}\n</tool_call>'
CALLED = {
    "role": "assistant",
    "content": "I add.",
    "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 12}'}}],
}
HEARD = {"role": "tool", "tool_call_id": "call_0", "content": "46"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tokenizer_of(tmp_path_factory.mktemp("qwen3") / "model", QWEN3)


@pytest.fixture(scope="module")
def module() -> ModuleType:
    # Not above: each worker of pytest imports this file, and verifiers takes seconds.
    from headrace.services.environment.taskset import renderer

    return renderer


def ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


def test_a_turn_goes_on_from_the_ids_that_were_sampled(tokenizer: Any, module: ModuleType) -> None:
    renderer = module.OwnTemplateRenderer(tokenizer)
    context = renderer.render_ids(ASKED, tools=TOOLS, add_generation_prompt=True)
    completion = [*ids(tokenizer, SAID), tokenizer.eos_token_id]
    parsed = renderer.parse_response(completion, tools=TOOLS, prompt_ids=context)
    assert (parsed.content, [(one.name, one.arguments) for one in parsed.tool_calls]) == (
        "I add.",
        [("add", {"a": 12})],
    )
    found = renderer.bridge_to_next_turn(context, completion, [HEARD], tools=TOOLS)
    assert found is not None and found.token_ids[: len(context) + len(completion)] == [*context, *completion]
    # Each token behind is the result's, or that of the next generation prompt.
    behind = found.message_indices[len(context) + len(completion) :]
    assert set(behind) == {0, -1} and behind == sorted(behind, key=lambda one: one == -1)
    # Rendered anew, what was said stays the text that it was, not a call that the template writes.
    anew = renderer.render_ids([*ASKED, CALLED, HEARD], tools=TOOLS, add_generation_prompt=True)
    assert SAID in tokenizer.decode(anew)


def test_what_it_has_not_rendered_it_does_not_continue(tokenizer: Any, module: ModuleType) -> None:
    renderer = module.OwnTemplateRenderer(tokenizer)
    assert renderer.bridge_to_next_turn([1, 2], [3], [HEARD], tools=TOOLS) is None
    context = renderer.render_ids(ASKED, tools=TOOLS, add_generation_prompt=True)
    completion = [*ids(tokenizer, SAID), tokenizer.eos_token_id]
    renderer.parse_response(completion, tools=TOOLS)
    renderer.forget()
    assert renderer.bridge_to_next_turn(context, completion, [HEARD], tools=TOOLS) is None
    anew = renderer.render_ids([*ASKED, CALLED, HEARD], tools=TOOLS, add_generation_prompt=True)
    assert SAID not in tokenizer.decode(anew), "an episode knows what another one has said"


def test_no_stop_token_of_the_run_is_left_in_what_was_said(tokenizer: Any, module: ModuleType) -> None:
    other = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert other != tokenizer.eos_token_id
    renderer = module.OwnTemplateRenderer(tokenizer, module.TemplateRendererConfig(stop_token_ids=(other,)))
    assert renderer.get_stop_token_ids() == [other, tokenizer.eos_token_id]
    for stop in renderer.get_stop_token_ids():
        assert renderer.parse_response([*ids(tokenizer, "46"), stop]).content == "46"
    plain = module.OwnTemplateRenderer(tokenizer)
    assert plain.parse_response([*ids(tokenizer, "46"), other]).content == "46<|endoftext|>"
