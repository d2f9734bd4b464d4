"""Tasksets of `verifiers` as they come: the real package, its servers of tools and its harness, in the sandbox."""

import asyncio
import json
import os
import signal
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from headrace.services.environment.settings import EnvironmentTable
from headrace.services.environment.taskset import harness, write_rows
from headrace.services.environment.taskset.harness import HarnessChoice, ready_scripts
from headrace.services.environment.taskset.rows import taskset_rows
from headrace.wire.contracts import FinishReason
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.v1 import rollout_pb2 as pb
from tests import builders
from tests.integration.environment.stage import play, played
from tests.integration.environment.taskset_stage import CALL, TASK, TASKSETS, taskset_stage
from tests.integration.environment.test_episode import error_of, sampled, seen
from tests.waiting import until_async

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("sandbox")]


async def test_a_taskset_is_played_with_its_tools_and_scored_by_its_rewards(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path, renderer="qwen3") as it:
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


async def test_each_branch_of_a_conversation_is_a_segment(tmp_path: Path) -> None:
    hidden = {"network": True, "sandbox": False}  # In the sandbox there is no place for a witness.
    async with taskset_stage(
        tmp_path, said_in_turn, name="forks", harness="forks", renderer="template", **hidden
    ) as it:
        for kind, (turns, segments) in KINDS.items():
            witness, replica = tmp_path / f"{kind}.json", it.replicas["rollout-0"]
            replica.asked.clear()
            playing = asyncio.create_task(
                play(it, played({"prompt": "first", "kind": kind, "witness": str(witness)})), name=kind
            )
            if kind == "retry":  # The first request is answered only when the client has repeated it.
                replica.hold = asyncio.Event()
                repeats = Path(f"{witness}.asked")
                await until_async(partial(has_repeated, repeats), "a retry of the client", seconds=200)
                replica.hold.set()
            rollout = await playing
            assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
            assert rollout.episode is not None and len(rollout.episode.segments) == segments
            assert sampled(rollout, it.tokenizer) == [f"answer {n}<|im_end|>" for n in range(turns)]
            assert len(replica.asked) == turns  # The requests of a retry are one turn.


def has_repeated(asked: Path) -> bool:
    """Whether the client has marked a request as a retry."""
    return asked.is_file() and "1" in asked.read_text().split()


@pytest.mark.long
async def test_a_limit_ends_an_episode_which_keeps_its_reward(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path, said_in_turn, name="forks", harness="forks") as it:
        rollout = await play(it, played({"prompt": "first", "kind": "many"}))
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.TURN_LIMIT, "")
        assert rollout.episode is not None and rollout.episode.reward is not None and rollout.episode.reward.value == 1
        assert sampled(rollout, it.tokenizer) == [f"answer {n}<|im_end|>" for n in range(4)]
        short = await play(it, played({"prompt": "first", "kind": "linear"}, max_tokens=6))
        assert short.finish_reason is FinishReason.LENGTH and short.trained_mask.sum() == 6
        assert short.episode is not None and short.episode.reward is not None
        async with it.pool.child() as child:
            prompt = played({"prompt": "first", "kind": "broken metric"})
            broken = await it.player.play(child, prompt, builders.header(3), 0)
        assert not child.alive, "what was broken in one episode would be in the next"
        assert broken.finish_reason is FinishReason.ENVIRONMENT_ERROR and "there is no metric" in error_of(broken)
        # Whoever looks at it sees what was said.
        assert [one.content for one in seen(broken).messages if one.role == "assistant"] == ["answer 0", "answer 1"]


@pytest.mark.long
async def test_a_process_killed_in_its_last_attempt_abstains_and_its_conversation_is_kept(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def says(text: str, request: pb.SampleRequest) -> str | None:
        if request.turn == 0:
            return CALL
        asked.set()
        return None  # Without room it is asked again and again.

    async with taskset_stage(tmp_path, says) as it, it.pool.child() as child:
        playing = asyncio.create_task(it.player.play(child, played(TASK), builders.header(3), 0))
        await asyncio.wait_for(asked.wait(), 200)
        os.kill(child.pid, signal.SIGKILL)
        ended = await playing
        assert ended.finish_reason is FinishReason.ENVIRONMENT_ERROR and "was ended by SIGKILL" in error_of(ended)
        assert [one.content for one in seen(ended).messages if one.role == "assistant"] == [CALL]


LOOKS = r"""
for one in /proc/[0-9]*; do
  if tr '\0' '\n' < $one/cmdline | head -1 | grep -q python && tr '\0' ' ' < $one/cmdline | grep -q taskset.host; then
    head -c 1 $one/environ > /dev/null 2>&1 && echo seen || echo kept
  fi
done
env | grep POLICY_API_KEY && echo seen
"""


@pytest.mark.long
async def test_a_shell_of_the_policy_cannot_read_the_process_that_scores_it(tmp_path: Path) -> None:
    call = f"<tool_call>\n{json.dumps({'name': 'bash', 'arguments': {'command': LOOKS}})}\n</tool_call>"

    def looks(text: str, request: pb.SampleRequest) -> str:
        return "done" if "<tool_response>" in text else call

    async with taskset_stage(tmp_path, looks, harness="bash") as it:
        async with it.pool.child() as child:
            rollout = await it.player.play(child, played(TASK), builders.header(3), 0)
        assert not child.alive, "another episode would be played beside what the shell has left"
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        (heard,) = [one for one in seen(rollout).messages if one.outcome == "returned"]
        assert "kept" in heard.content and "seen" not in heard.content


async def test_a_harness_without_known_tokens_is_refused_by_name(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path, harness="codex") as it:
        with pytest.raises(ConfigError, match='"codex": it needs a container, or speaks no chat'):
            async with it.pool.child():
                pass


async def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(harness, "version", missing)
    with pytest.raises(ConfigError, match=r"verifiers:calc.*pip install 'headrace\[verifiers\]'"):
        await ready_scripts(HarnessChoice(name="null", taskset="calc", path=TASKSETS))


async def test_the_first_tasks_of_an_endless_taskset_are_read_under_a_limit_alone() -> None:
    endless = EnvironmentTable(name="verifiers:forks", path=TASKSETS, harness="forks")
    with pytest.raises(DataError, match=r"forks: ForksTaskset has no end: set data\.limit to the number of its tasks"):
        await taskset_rows(endless, 0)
    assert [row["kind"] for row in await taskset_rows(endless, 3)] == ["linear"] * 3


def test_the_rows_of_a_taskset_can_be_written_to_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = os.path.relpath(TASKSETS)
    assert write_rows.main(["calc", "--path", path]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["prompt"], row["answer"]) for row in rows] == [(f"What is {n} + 34?", n + 34) for n in range(12, 20)]
    assert write_rows.main(["calc", "--path", path, "--options", "[1]"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("--options [1]: not the fields of a taskset's config"), said.err
    assert write_rows.main(["absent", "--path", path]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("verifiers:absent: ModuleNotFoundError"), said.err
