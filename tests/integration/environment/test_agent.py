"""Any program as an agent: it speaks to its endpoint with the real client, and what it was answered is trained."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.model.tiny_models import END
from headrace.services.environment import metrics
from headrace.wire.contracts import FinishReason, turn_seed
from headrace.wire.contracts.arrays import ids_from_bytes
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.agents import agent_stage, play
from tests.integration.environment.test_episode import error_of, sampled, seen
from tests.unit.services.environment.rendering.qwen3 import QWEN3, model_folder

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("sandbox")]
REACT = """
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
task = json.load(open("task.json"))
messages = [{"role": "user", "content": task["question"]}]
while True:
    answer = ask(*messages, tools=TOOLS).choices[0]
    messages.append(answer.message)
    if answer.finish_reason != "tool_calls":
        break
    for call in answer.message.tool_calls:
        found = sum(json.loads(call.function.arguments).values())
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(found)})
open("reward.txt", "w").write(str(float(answer.message.content == task["answer"])))
"""


def adds(text: str, request: pb.SampleRequest) -> str:
    call = {"name": "add", "arguments": {"a": 12, "b": 34}}
    return f"I add. <tool_call>{json.dumps(call)}</tool_call>" if request.turn == 0 else "46"


async def test_a_loop_with_tools_is_one_sequence_of_sampled_and_observed_tokens(tmp_path: Path) -> None:
    task = {"question": "12 + 34?", "answer": "46"}
    async with agent_stage(tmp_path, REACT, adds, reward_file="reward.txt") as it:
        rollout = await play(it, task, index=2)
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        assert rollout.episode is not None and rollout.episode.reward is not None
        assert rollout.episode.reward.value == 1.0 and rollout.text == "46"
        call = '<tool_call>{"name": "add", "arguments": {"a": 12, "b": 34}}</tool_call>'
        assert sampled(rollout, it.tokenizer) == [f"I add. {call}{END}", f"46{END}"]
        (segment,) = rollout.episode.segments
        whole = np.concatenate([segment.context_ids, rollout.token_ids])
        assert it.tokenizer.decode(whole.tolist()) == (
            f"add{END}[user]12 + 34?{END}[assistant]I add. {call}{END}[tool]46{END}[assistant]46{END}"
        )
        asked = it.replicas["rollout-0"].asked
        for request in asked:
            context = ids_from_bytes(request.context_ids)
            np.testing.assert_array_equal(context, whole[: len(context)])
        assert [one.sampling.seed for one in asked] == [turn_seed(7, "test/g00000003", 2, n) for n in range(2)]
        assert {(one.rollout_id, one.attempt) for one in asked} == {("test/g00000003/2", 1)}
        assert not rollout.logprobs[~rollout.trained_mask].any() and rollout.trained_mask.sum() == sum(
            len(it.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in sampled(rollout, it.tokenizer)
        )
        view = seen(rollout)
        assert [(one.name, one.outcome) for one in view.messages if one.outcome] == [("add", "returned")]
        assert [one.turn for one in view.messages if one.turn is not None] == [0, 1]


THINKS = [
    '<think>\n\n\nI add.\n</think><tool_call>\n{"name": "add", "arguments": {"a": 12, "b": 34}}\n</tool_call>',
    "46",
]


async def test_a_family_parses_reasoning_and_tool_calls_and_continues_from_them(tmp_path: Path) -> None:
    program = REACT + "assert messages[1].model_extra.get('reasoning_content') == 'I add.', messages[1]\n"
    model: dict[str, Any] = {"template": QWEN3, "model": model_folder, "renderer": "qwen3"}
    model["says"] = lambda text, request: THINKS[request.turn]
    async with agent_stage(tmp_path, program, reward_file="reward.txt", **model) as it:
        rollout = await play(it, {"question": "12 + 34?", "answer": "46"})
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        assert rollout.episode is not None and len(rollout.episode.segments) == 1
        assert sampled(rollout, it.tokenizer) == [f"{text}<|im_end|>" for text in THINKS]
        messages = json.loads(rollout.episode.messages_json)
        assert [one["content"] for one in messages if one["role"] == "assistant"] == THINKS
        assert [(one.name, one.outcome) for one in seen(rollout).messages if one.outcome] == [("add", "returned")]


CLIENT = """
import openai
tools = [{"type": "function", "function": {"name": "add"}}]
pieces = list(ask(USER, stream=True, stream_options={"include_usage": True}, tools=tools))
text = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
(call,) = [call for one in pieces if one.choices for call in one.choices[0].delta.tool_calls or []]
assert text == "I add.", text
assert json.loads(call.function.arguments) == {"a": 12, "b": 34} and call.index == 0
assert pieces[-2].choices[0].finish_reason == "tool_calls" and pieces[-1].usage.completion_tokens > 10
assert [one.id for one in client.models.list()] == ["policy"]
for refused, error, name, value in (
    (lambda: ask(USER, n=2), openai.BadRequestError, "param", "n"),
    (lambda: OpenAI(api_key="sk-other").models.list(), openai.AuthenticationError, "code", "invalid_api_key"),
    (lambda: client.embeddings.create(model="policy", input="x"), openai.NotFoundError, "status_code", 404),
):
    try:
        refused()
        sys.exit(f"no {error}")
    except error as found:
        assert getattr(found, name) == value, found
"""


async def test_a_client_gets_a_finished_turn_as_deltas_and_rejections_as_openai_errors(tmp_path: Path) -> None:
    async with agent_stage(tmp_path, CLIENT, adds) as it:
        rollout = await play(it)
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")


async def test_a_request_repeated_while_or_after_it_is_sampled_is_one_turn(tmp_path: Path) -> None:
    program = """
    import httpx
    hasty = OpenAI(timeout=httpx.Timeout(0.3), max_retries=0)
    try:
        hasty.chat.completions.create(model="policy", messages=[USER])
        sys.exit("it was in time")
    except Exception as error:
        assert type(error).__name__ == "APITimeoutError", error
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(3) as pool:
        texts = [one.choices[0].message.content for one in pool.map(lambda _: ask(USER), range(3))]
    assert texts + [ask(USER).choices[0].message.content] == ["a0"] * 4, texts
    """

    async with agent_stage(tmp_path, program) as it:
        import asyncio

        replica = it.replicas["rollout-0"]
        replica.hold = asyncio.Event()
        before = metrics.REPEATED_CALLS._value.get()
        playing = asyncio.create_task(play(it))
        while metrics.REPEATED_CALLS._value.get() < before + 3:
            assert not playing.done(), error_of(playing.result())
            await asyncio.sleep(0.01)
        replica.hold.set()
        rollout = await playing
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        assert len(replica.asked) == 1 and sampled(rollout, it.tokenizer) == [f"a0{END}"]


async def test_an_edited_history_begins_a_segment_and_an_unused_answer_is_dropped(tmp_path: Path) -> None:
    program = """
    first = said(ask(USER))
    edited = {**first, "content": first["content"] + "!"}
    second = said(ask(USER, edited, USER))
    ask(USER, edited, USER, {"role": "user", "content": "again, please"})
    """
    before = metrics.DROPPED_TURNS._value.get()
    async with agent_stage(tmp_path, program) as it:
        rollout = await play(it)
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        assert sampled(rollout, it.tokenizer) == [f"a0{END}", f"a2{END}"]
        assert rollout.episode is not None and len(rollout.episode.segments) == 2
        assert metrics.DROPPED_TURNS._value.get() == before + 1
        ((_, _, begun),) = it.begun
        assert begun == {"first": 1, "edited": 2}
        notes = [one["content"] for one in json.loads(rollout.episode.messages_json) if one["role"] == "note"]
        assert [re.sub(" of the policy.*: ", ": ", one) for one in notes] == ["call 1: a0", "call 2: a1"]
        assert "not trained" in notes[1] and "not trained" not in notes[0]
