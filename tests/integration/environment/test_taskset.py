"""Tasksets of `verifiers` as they come: the real package, its servers of tools and its harness, in the sandbox."""

import asyncio
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.environment.child.errors import ChildDiedError
from headrace.services.environment.settings import EnvironmentTable
from headrace.services.environment.taskset.harness import FOLDER, HarnessChoice, ready_scripts
from headrace.services.environment.taskset.process import TasksetConfig
from headrace.services.environment.taskset.rows import taskset_rows
from headrace.wire.contracts import FinishReason, Rollout
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.v1 import rollout_pb2 as pb
from tests import builders
from tests.integration.environment.stage import played, stage
from tests.integration.environment.test_child import need_sandbox
from tests.integration.environment.test_episode import play, sampled, seen
from tests.unit.services.environment.rendering.qwen3 import QWEN3, model_folder
from tests.waiting import until_async

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("sandbox")]
TASKSETS = Path(__file__).parent / "tasksets"
TASK = {"prompt": "What is 12 + 34?", "answer": 46}
CALL = '<tool_call>\n{"name": "calc_add", "arguments": {"a": 12, "b": 34}}\n</tool_call>'


@pytest.fixture
def sandbox() -> None:
    need_sandbox()


def adds(text: str, request: pb.SampleRequest) -> str:
    return "46" if "<tool_response>" in text else CALL


def taskset_stage(
    folder: Path,
    says: Any = adds,
    *,
    name: str = "calc",
    harness: str = "null",
    renderer: str = "qwen3",
    **more: Any,
) -> Any:
    taskset = TasksetConfig(
        taskset=name,
        options={},
        harness=harness,
        model=folder,
        renderer=renderer,
        max_turns=4,
        context_length=4000,
    )
    return stage(
        folder,
        says,
        template=QWEN3,
        model=model_folder,
        renderer=renderer,
        slots=1,
        taskset=taskset,
        **{"path": TASKSETS, **more},
    )


def error_of(rollout: Rollout) -> str:
    assert rollout.episode is not None
    return rollout.episode.error


@pytest.mark.parametrize("renderer", ["qwen3", "template"])
async def test_a_taskset_is_played_with_its_tools_and_scored_by_its_rewards(tmp_path: Path, renderer: str) -> None:
    async with taskset_stage(tmp_path, renderer=renderer) as it:
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


KINDS = {"linear": (2, 1), "fork": (3, 2), "compaction": (3, 2), "retry": (2, 1)}
"""Turns and segments of each kind of conversation."""


@pytest.mark.parametrize("renderer", ["qwen3", "template"])
async def test_what_is_trained_is_what_the_package_sees_in_its_branches(tmp_path: Path, renderer: str) -> None:
    hidden = {"network": True, "sandbox": False}  # In the sandbox there is no place for a witness.
    async with taskset_stage(tmp_path, said_in_turn, name="forks", harness="forks", renderer=renderer, **hidden) as it:
        for kind, (turns, segments) in KINDS.items():
            witness, replica = tmp_path / f"{kind}.json", it.replicas["rollout-0"]
            replica.asked.clear()
            if kind == "retry":  # The program gives the first request up before it is answered.
                replica.hold = asyncio.Event()
                asyncio.get_running_loop().call_later(4.0, replica.hold.set)
            rollout = await play(it, played({"prompt": "first", "kind": kind, "witness": str(witness)}))
            assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
            assert rollout.episode is not None and len(rollout.episode.segments) == segments
            assert sampled(rollout, it.tokenizer) == [f"answer {n}<|im_end|>" for n in range(turns)]
            assert len(replica.asked) == turns  # Two requests of a retry are one turn.
            are_those_of_the_branches(rollout, json.loads(witness.read_text()))


def are_those_of_the_branches(rollout: Rollout, branches: list[dict[str, Any]]) -> None:
    trained: set[bytes] = set()
    for (ids, mask, logprobs), branch in zip(segments_of(rollout), branches, strict=True):
        assert ids.tolist() == branch["ids"]
        # A token that an earlier branch has is trained there.
        wanted = [own and ids[: place + 1].tobytes() not in trained for place, own in enumerate(branch["mask"])]
        assert mask.tolist() == wanted and any(wanted)
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


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("silent", "a server of tools ended with status 0 before it served; its module must run it"),
        ("stuck", "a server of tools did not come up: it has done nothing for 10 s"),
        ("pair", "verifiers:pair: it comes with the environment Pair, which may let several agents play"),
        ("absent", "verifiers:absent: ModuleNotFoundError"),
    ],
)
async def test_a_taskset_that_cannot_be_played_is_refused_at_the_start(tmp_path: Path, name: str, wanted: str) -> None:
    async with taskset_stage(tmp_path, name=name) as it:
        with pytest.raises(ConfigError, match=wanted):
            async with it.pool.child():
                pass


async def test_a_harness_without_known_tokens_is_refused_by_name(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path, harness="codex") as it:
        with pytest.raises(ConfigError, match='"codex": it needs a container, or speaks no chat'):
            async with it.pool.child():
                pass


async def test_without_uv_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "harness"))
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    choice = HarnessChoice(name="null", taskset="calc", path=TASKSETS)
    with pytest.raises(ConfigError, match="its script needs `uv`, and there is none on the PATH: pip install"):
        await ready_scripts(choice)


async def test_a_process_that_is_killed_in_an_episode_is_played_again(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path) as it:
        replica = it.replicas["rollout-0"]
        replica.hold = asyncio.Event()
        async with it.pool.child() as child:
            playing = asyncio.create_task(it.player.play(child, played(TASK), builders.header(3), 0, last=False))
            await until_async(lambda: bool(replica.asked), "a turn to be asked for", seconds=200)
            os.kill(child.pid, signal.SIGKILL)
            with pytest.raises(ChildDiedError):
                await playing
        replica.hold.set()
        rollout = await play(it, played(TASK))
        assert rollout.finish_reason is FinishReason.STOP and rollout.trained_mask.any()


async def test_the_tasks_are_the_rows_of_a_run(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model")
    rows = await taskset_rows(EnvironmentTable(name="verifiers:calc", path=TASKSETS), model, 0)
    assert [(row["prompt"], row["answer"]) for row in rows] == [(f"What is {n} + 34?", n + 34) for n in range(12, 20)]
    endless = EnvironmentTable(name="verifiers:forks", path=TASKSETS, harness="forks")
    with pytest.raises(DataError, match=r"forks: ForksTaskset has no end: set data\.limit to the number of its tasks"):
        await taskset_rows(endless, model, 0)
    assert [row["kind"] for row in await taskset_rows(endless, model, 3)] == ["linear"] * 3


def adds_as_asked(text: str, request: pb.SampleRequest) -> str:
    a, b = map(int, re.findall(r"What is (\d+) \+ (\d+)", text)[-1])
    call = {"name": "calc_add", "arguments": {"a": a, "b": b}}
    return str(a + b) if "<tool_response>" in text else f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


async def test_a_taskset_that_was_written_elsewhere_is_played(tmp_path: Path) -> None:
    given = os.environ.get("HEADRACE_TASKSETS")
    if given is None:
        pytest.skip("HEADRACE_TASKSETS names no folder with the taskset calc_v1")
    folder = Path(given)
    async with taskset_stage(tmp_path, adds_as_asked, name="calc_v1", path=folder) as it:
        rows = await taskset_rows(EnvironmentTable(name="verifiers:calc_v1", path=folder), tmp_path / "model", 2)
        for row in rows:
            rollout = await play(it, played(row))
            assert (rollout.finish_reason, rollout.text) == (FinishReason.STOP, str(row["answer"]))
            assert rollout.episode is not None and rollout.episode.reward is not None
            assert rollout.episode.reward.value == 1.0 and len(rollout.episode.segments) == 1
