"""What users' functions get of an episode, in real workers: all of its messages, in the form of each library."""

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.reward.scorer import Sample, Scorer
from headrace.wire.contracts import Segment
from tests.reward_scorers import loaded_scorer, played_sample

CALL = '<tool_call>{"name": "find", "arguments": {"who": "Ada"}}</tool_call>'
MESSAGES = [
    {"role": "system", "content": "Use the tools."},
    {"role": "user", "content": "When was Ada born?"},
    {
        "role": "assistant",
        "content": f"I look it up. {CALL}",
        "turn": 0,
        "seconds": 0.1,
        "tool_calls": [{"name": "find", "arguments": {"who": "Ada"}}],
    },
    {"role": "tool", "name": "find", "content": "1815", "outcome": "returned"},
    {"role": "assistant", "content": "Hm.", "turn": 1},
    {"role": "user", "content": "When?"},
    {"role": "assistant", "content": "In 1815.", "turn": 2},
]
ASKED = [{"role": "system", "content": "Use the tools."}, {"role": "user", "content": "When was Ada born?"}]
SAID = [
    {
        "role": "assistant",
        "content": "I look it up.",
        "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": {"who": "Ada"}}}],
    },
    {"role": "tool", "content": "1815", "name": "find"},
    {"role": "assistant", "content": "Hm."},
    {"role": "user", "content": "When?"},
    {"role": "assistant", "content": "In 1815."},
]
FUNCTIONS = f"""
ASKED, SAID = {ASKED!r}, {SAID!r}

def plain(completion, messages, **columns):
    assert messages == ASKED + SAID, messages
    return float(completion == "In 1815.")

def column(completion, messages):
    return float(messages == "mine")
"""
TASKSET = """
import json
import verifiers.v1 as vf

class FindData(vf.TaskData):
    ids: list[list[int]] = []
    masks: list[list[bool]] = []

class FindTask(vf.Task[FindData]):
    @vf.reward
    async def used(self, trace) -> float:
        roles = [one.role for one in trace.messages]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"], roles
        assert [one.sampled for one in trace.nodes] == [False, False, True, False, True, False, True]
        call = trace.messages[2].tool_calls[0]
        assert (call.name, json.loads(call.arguments)) == ("find", {"who": "Ada"}), call
        assert trace.messages[3].tool_call_id == call.id and trace.messages[3].name == "find"
        assert trace.last_reply == "In 1815." and self.data.prompt_text.endswith("When was Ada born?")
        assert [one.finish_reason for one in trace.calls] == ["tool_calls", "stop", "stop"], trace.calls
        return 1.0

    @vf.reward(weight=0.0)
    async def exact(self, trace) -> float:
        found = [one.token_ids for one in trace.nodes], [one.mask for one in trace.nodes]
        assert found == (self.data.ids, self.data.masks), found
        return 1.0

    @vf.metric
    async def read(self, trace) -> float:
        return float(sum(one.usage.prompt_tokens for one in trace.calls))

class Find(vf.Taskset[FindTask, vf.TasksetConfig]):
    def load(self):
        return []

__all__ = ["Find"]
"""
# What GRPOTrainer of TRL 1.16.0 (transformers 5.23.0) gave to a reward function, with `tools=[find]`, the chat template
# of Qwen3 and these three completions, scripted: a call that is answered, one whose tool raises KeyError, an answer.
TRL_SAID = [
    'I look it up.\n<tool_call>\n{"name": "find", "arguments": {"who": "Ada"}}\n</tool_call>',
    '<tool_call>\n{"name": "find", "arguments": {"who": "Eve"}}\n</tool_call>',
    "In 1815.",
]
TRL_RESULTS = ["1815", "{'error': \"'Eve'\"}"]
TRL_COMPLETION = [
    {
        "role": "assistant",
        "content": "I look it up.",
        "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": {"who": "Ada"}}}],
    },
    {"role": "tool", "name": "find", "content": "1815"},
    {
        "role": "assistant",
        "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": {"who": "Eve"}}}],
        "content": "",
    },
    {"role": "tool", "name": "find", "content": "{'error': \"'Eve'\"}"},
    {"role": "assistant", "content": "In 1815."},
]
LIKE_TRL = f"""
def like_trl(prompts, completions, completion_ids, answer, **kwargs):
    assert prompts == [{ASKED!r}] * 2 and completions == [{TRL_COMPLETION!r}] * 2, (prompts, completions)
    assert [len(one) for one in completion_ids] == [5, 5] and answer == ["1815"] * 2
    return [1.0, 0.5]
"""


def played(messages: object = MESSAGES, *, segments: tuple[Segment, ...] = (), **columns: Any) -> Sample:
    """Three turns: of one, one and two sampled tokens; the last one in a segment of its own unless others are given."""
    changes: dict[str, Any] = {"segments": segments} if segments else {}
    sample = played_sample(messages_json=json.dumps(messages), **changes)
    return replace(sample, completion="In 1815.", columns=columns)


def loaded(folder: Path, name: str) -> AbstractAsyncContextManager[Scorer]:
    (folder / "of_episodes.py").write_text(FUNCTIONS + LIKE_TRL)
    return loaded_scorer(name, timeout_s=60.0, user_path=folder)


async def test_a_trl_function_gets_the_arguments_that_trl_passes(tmp_path: Path) -> None:
    calls = ({"name": "find", "arguments": {"who": who}} for who in ("Ada", "Eve"))
    record: list[dict[str, object]] = [{**one} for one in ASKED]
    for turn, text in enumerate(TRL_SAID):
        record.append({"role": "assistant", "content": text, "turn": turn, "replica": "rollout-0"})
        if turn < len(TRL_RESULTS):
            record[-1]["tool_calls"] = [next(calls)]
            record.append({"role": "tool", "name": "find", "content": TRL_RESULTS[turn], "outcome": "raised"})
    record.append({"role": "note", "content": "call 4 of the policy, not trained: it is no message"})
    async with loaded(tmp_path, "trl:of_episodes:like_trl") as scorer:
        found = await scorer.score([played(record, answer="1815")] * 2)
        assert [one.value for one in found] == [1.0, 0.5], found[0].reason


async def test_a_function_with_a_messages_parameter_gets_every_message(tmp_path: Path) -> None:
    async with loaded(tmp_path, "of_episodes:plain") as scorer:
        assert scorer.problem({}) is None
        (found,) = await scorer.score([played()])
        assert found.value == 1.0, found.reason
    async with loaded(tmp_path, "of_episodes:column") as scorer:
        (found,) = await scorer.score([Sample(prompt="1+1=", completion="2", columns={"messages": "mine"})])
        assert found.value == 1.0, "a column of the data comes first"


def test_a_verifiers_taskset_scores_the_whole_trace_of_an_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verifiers", reason="the extra `verifiers` is not installed")
    from headrace.services.reward.user.verifiers import _job, serve

    (tmp_path / "find_env.py").write_text(TASKSET)
    monkeypatch.syspath_prepend(tmp_path)
    # In one segment the nodes' ids, joined, are what the engine saw; in several they are the sampled ones alone.
    one = (Segment(start=0, context_ids=np.array([5, 6], np.int32)),)
    whole: dict[str, Any] = {"ids": [[], [], [5, 6, 3], [], [9, 4], [], [5, 1]]}
    whole |= {"masks": [[], [], [False, False, True], [], [False, True], [], [True, True]]}
    parts: dict[str, Any] = {"ids": [[], [], [3], [], [4], [], [5, 1]]}
    parts |= {"masks": [[], [], [True], [], [True], [], [True, True]]}
    answer = serve("find_env", "", {})
    for sample, read in ((played(segments=one, **whole), 2 + 4 + 5), (played(**parts), 2 + 4 + 3)):
        found = answer(_job(sample))  # type: ignore[arg-type]
        assert found == {"value": 1.0, "parts": {"used": 1.0, "exact": 1.0, "read": float(read)}}
