"""Tasksets of `verifiers` as they come: the real package, its servers of tools and its harness, in the sandbox."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.environment.taskset.process import TasksetConfig
from headrace.wire.contracts import FinishReason, Rollout
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.stage import played, stage
from tests.integration.environment.test_child import need_sandbox
from tests.integration.environment.test_episode import play, sampled, seen
from tests.unit.services.environment.rendering.qwen3 import QWEN3, model_folder

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("sandbox")]
TASKSETS = Path(__file__).parent / "tasksets"
TASK = {"prompt": "What is 12 + 34?", "answer": 46}
CALL = '<tool_call>\n{"name": "calc_add", "arguments": {"a": 12, "b": 34}}\n</tool_call>'


@pytest.fixture
def sandbox() -> None:
    need_sandbox()


def adds(text: str, request: pb.SampleRequest) -> str:
    return "46" if "<tool_response>" in text else CALL


def taskset_stage(folder: Path, says: Any = adds, *, name: str = "calc", harness: str = "null", **more: Any) -> Any:
    taskset = TasksetConfig(
        taskset=name,
        options={},
        harness=harness,
        model=folder,
        renderer="qwen3",
        max_turns=4,
        context_length=4000,
    )
    return stage(
        folder,
        says,
        template=QWEN3,
        model=model_folder,
        renderer="qwen3",
        slots=1,
        taskset=taskset,
        **{"path": TASKSETS, **more},
    )


def error_of(rollout: Rollout) -> str:
    assert rollout.episode is not None
    return rollout.episode.error


async def test_a_taskset_is_played_with_its_tools_and_scored_by_its_rewards(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path) as it:
        rollout = await play(it, played(TASK))
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        assert rollout.episode is not None and rollout.episode.reward is not None
        assert rollout.episode.reward.value == 1.5
        assert rollout.episode.reward.components == {"exact": 1.0, "used": 0.5}
        assert rollout.episode.reward.metrics["turns"] == 2.0
        assert sampled(rollout, it.tokenizer) == [f"{CALL}<|im_end|>", "46<|im_end|>"]
        assert len(rollout.episode.segments) == 1 and rollout.text == "46"
        assert [(one.name, one.outcome) for one in seen(rollout).messages if one.outcome] == [("calc_add", "returned")]


def said_in_turn(text: str, request: pb.SampleRequest) -> str:
    return f"answer {request.turn}"


@pytest.mark.parametrize(
    ("kind", "turns", "segments"), [("linear", 2, 1), ("fork", 3, 2), ("compaction", 3, 2), ("retry", 2, 1)]
)
async def test_what_is_trained_is_what_the_package_sees_in_its_branches(
    tmp_path: Path, kind: str, turns: int, segments: int
) -> None:
    witness = tmp_path / "branches.json"
    hidden = {"network": True, "sandbox": False}  # In the sandbox there is no place for a witness.
    async with taskset_stage(tmp_path, said_in_turn, name="forks", harness="forks", **hidden) as it:
        replica = it.replicas["rollout-0"]
        if kind == "retry":
            replica.hold = asyncio.Event()
            asyncio.get_running_loop().call_later(4.0, replica.hold.set)
        rollout = await play(it, played({"prompt": "first", "kind": kind, "witness": str(witness)}))
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        assert rollout.episode is not None and len(rollout.episode.segments) == segments
        assert sampled(rollout, it.tokenizer) == [f"answer {n}<|im_end|>" for n in range(turns)]
        assert len(replica.asked) == turns  # Two requests of a retry are one turn.
        trained: set[bytes] = set()
        for segment, branch in zip(segments_of(rollout), json.loads(witness.read_text()), strict=True):
            ids, mask, logprobs = segment
            assert ids.tolist() == branch["ids"]
            # A token that an earlier branch has is trained there.
            wanted = [own and ids[: place + 1].tobytes() not in trained for place, own in enumerate(branch["mask"])]
            assert mask.tolist() == wanted
            np.testing.assert_array_equal(logprobs[mask], np.float32(branch["logprobs"])[mask])
            trained |= {ids[: place + 1].tobytes() for place in np.flatnonzero(mask)}


def segments_of(rollout: Rollout) -> list[tuple[Any, Any, Any]]:
    """Ids, mask and logprobs of each segment, its context included."""
    assert rollout.episode is not None
    starts = [one.start for one in rollout.episode.segments]
    found = []
    for segment, start, end in zip(rollout.episode.segments, starts, [*starts[1:], None], strict=True):
        before = len(segment.context_ids)
        ids = np.concatenate([segment.context_ids, rollout.token_ids[start:end]])
        mask = np.concatenate([np.zeros(before, bool), rollout.trained_mask[start:end]])
        found.append((ids, mask, np.concatenate([np.zeros(before, np.float32), rollout.logprobs[start:end]])))
    return found


async def test_limits_end_an_episode_that_is_scored_as_it_stands(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path, said_in_turn, name="forks", harness="forks") as it:
        rollout = await play(it, played({"prompt": "first", "kind": "many"}))
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.TURN_LIMIT, "")
        assert rollout.episode is not None and rollout.episode.reward is not None and rollout.episode.reward.value == 1
        short = await play(it, played({"prompt": "first", "kind": "linear"}, max_tokens=6))
        assert short.finish_reason is FinishReason.LENGTH and short.trained_mask.sum() == 6
        assert short.episode is not None and short.episode.reward is not None
