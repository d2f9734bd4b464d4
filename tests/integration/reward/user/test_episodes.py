"""What users' functions get of an episode, in real workers: all of its messages, in the form of each library."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.services.reward.rubric.samples import samples_of
from headrace.services.reward.scorers import Context, Sample, Scorer, build_scorer
from tests import builders

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

def of_trl(prompts, completions, completion_ids, **kwargs):
    assert prompts == [ASKED] and completions == [SAID], (prompts, completions)
    return [float(len(completion_ids[0]))]

def plain(completion, messages, **columns):
    assert messages == ASKED + SAID, messages
    return float(completion == "In 1815.")

def column(completion, messages):
    return float(messages == "mine")
"""
TASKSET = """
import json
import verifiers.v1 as vf

class FindTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def used(self, trace) -> float:
        roles = [one.role for one in trace.messages]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"], roles
        call = trace.messages[2].tool_calls[0]
        assert (call.name, json.loads(call.arguments)) == ("find", {"who": "Ada"}), call
        assert trace.messages[3].tool_call_id == call.id and trace.messages[3].name == "find"
        assert trace.last_reply == "In 1815." and self.data.prompt_text.endswith("When was Ada born?")
        return 1.0

    @vf.metric
    async def turns(self, trace) -> float:
        return float(trace.num_turns)

    @vf.metric
    async def sampled(self, trace) -> float:
        return float(trace.num_output_tokens)

class Find(vf.Taskset[FindTask, vf.TasksetConfig]):
    def load(self):
        return []

__all__ = ["Find"]
"""


def played() -> Sample:
    """Three turns: of one, one and two sampled tokens."""
    group = builders.played_group()
    episode = group.rollouts[0].episode
    assert episode is not None
    rollout = replace(group.rollouts[0], text="In 1815.", episode=replace(episode, messages_json=json.dumps(MESSAGES)))
    return samples_of(replace(group, rollouts=(rollout, group.rollouts[1])), "g")[0]


@asynccontextmanager
async def loaded(folder: Path, name: str) -> AsyncIterator[Scorer]:
    (folder / "of_episodes.py").write_text(FUNCTIONS)
    (folder / "find_env.py").write_text(TASKSET)
    scorer = build_scorer(name, {}, Context(component="mine", timeout_s=60.0, user_path=folder))
    try:
        await scorer.load()
        yield scorer
    finally:
        await scorer.close()


async def test_a_function_of_trl_gets_messages_with_calls_and_results(tmp_path: Path) -> None:
    async with loaded(tmp_path, "trl:of_episodes:of_trl") as scorer:
        (found,) = await scorer.score([played()])
        assert found.value == 5.0, found.reason


async def test_a_function_that_names_messages_gets_all_of_them(tmp_path: Path) -> None:
    async with loaded(tmp_path, "of_episodes:plain") as scorer:
        assert scorer.problem({}) is None
        (found,) = await scorer.score([played()])
        assert found.value == 1.0, found.reason
    async with loaded(tmp_path, "of_episodes:column") as scorer:
        (found,) = await scorer.score([Sample(prompt="1+1=", completion="2", columns={"messages": "mine"})])
        assert found.value == 1.0, "a column of the data comes first"


async def test_a_taskset_of_verifiers_scores_the_whole_trace(tmp_path: Path) -> None:
    pytest.importorskip("verifiers", reason="the extra `verifiers` is not installed")
    async with loaded(tmp_path, "verifiers:find_env") as scorer:
        (found,) = await scorer.score([played()])
        assert found.value == 1.0, found.reason
        assert found.parts["turns"] == 3.0 and found.parts["sampled"] == 4.0
