"""A conversation is the same tokens as an example to learn and as an episode that was played."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.config.data import DataTable
from headrace.data.example_render import ExampleRenderer, RenderedExample
from headrace.data.examples import dialogue_of
from headrace.data.rows import DataRow
from headrace.model.tiny_models import END
from headrace.wire.contracts import FinishReason
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.stage import FORGETFUL, TEMPLATE, Stage, played, stage
from tests.integration.environment.test_episode import play

pytestmark = pytest.mark.timeout(400)
TOOLED = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
CALLING = TEMPLATE.replace(
    "{{ m.content }}",
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}",
)
CALL = {"name": "add", "arguments": {"a": 12, "b": 34}}
SAID = (f"hm</think><tool_call>{json.dumps(CALL)}</tool_call>", "so</think>it is 46")


def example(it: Stage, messages: list[dict[str, Any]], tools: object) -> list[RenderedExample]:
    table = DataTable(path="rows.jsonl", preset="messages")
    renderer = ExampleRenderer(it.tokenizer, table, [it.tokenizer.convert_tokens_to_ids(END)])
    return renderer.dialogue(dialogue_of(DataRow("row 1", {"messages": messages, "tools": tools}), table))


@pytest.mark.parametrize("template", [TEMPLATE, TOOLED + TEMPLATE, FORGETFUL], ids=["all", "with tools", "forgetful"])
@pytest.mark.parametrize("as_json", [False, True], ids=["a list", "JSON"])
async def test_what_is_learned_from_an_example_is_what_an_episode_trains(
    tmp_path: Path, template: str, as_json: bool
) -> None:
    def says(text: str, request: pb.SampleRequest) -> str:
        return SAID[request.turn]

    async with stage(tmp_path, says, tools=("games:add",), template=template) as it:
        prompt = played({"prompt": "what is 12 + 34?"})
        rollout = await play(it, prompt)
        assert rollout.finish_reason is FinishReason.STOP and rollout.episode is not None
        async with it.pool.child() as child:
            schemas = (await child.reset({"prompt": "?"}, "r/0", 0, timeout_s=100.0))["tools"]
        roles = ("user", "assistant", "tool", "assistant")
        texts = ("what is 12 + 34?", SAID[0], "46", SAID[1])
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        tools = schemas if template.startswith(TOOLED) else None  # Tools that no template writes are refused.
        found = example(it, messages, json.dumps(tools) if as_json else tools)
        segments = rollout.segments(prompt)
        assert len(found) == len(segments) == (2 if template is FORGETFUL else 1)
        for one, segment, end in zip(found, segments, rollout.episode.ends(len(rollout.token_ids)), strict=True):
            assert one.prompt_ids == segment.context_ids.tolist()
            assert one.completion_ids == rollout.token_ids[segment.start : end].tolist()
            np.testing.assert_array_equal(one.trained, rollout.trained_mask[segment.start : end])
        shown = it.tokenizer.decode(found[0].prompt_ids)
        assert ('"name": "add"' in shown) is template.startswith(TOOLED)


async def test_calls_given_as_tool_calls_are_learned_as_the_template_writes_them(tmp_path: Path) -> None:
    async with stage(tmp_path, lambda text, request: "", tools=("games:add",), template=CALLING) as it:
        messages = [
            {"role": "user", "content": "what is 12 + 34?"},
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": CALL}]},
            {"role": "tool", "name": "add", "content": "46"},
            {"role": "assistant", "content": "46"},
        ]
        (one,) = example(it, messages, None)
        pairs = zip(one.completion_ids, one.trained, strict=True)
        learned = it.tokenizer.decode([token for token, trained in pairs if trained])
        assert learned == f"<tool_call>{json.dumps(CALL)}</tool_call>{END}46{END}"
        read = it.tokenizer.decode(
            [token for token, trained in zip(one.completion_ids, one.trained, strict=True) if not trained]
        )
        assert read == f"[tool]46{END}[assistant]"
