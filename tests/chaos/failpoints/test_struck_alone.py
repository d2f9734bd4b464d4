"""Failpoints that no run of the campaign reaches, each hit by SIGKILL in a real process all the same."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import grpc
import pytest

from headrace.wire.contracts.codec import GROUP
from headrace.wire.rpc import channel
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.v1 import reward_pb2, rollout_pb2, trainer_pb2
from tests import builders
from tests.chaos.failpoints.armed_run import SCORED, ArmedRun
from tests.chaos.failpoints.campaign import undisturbed
from tests.chaos.failpoints.expected import CALLED, CLAIMED, MOVED, SET_ASIDE
from tests.chaos.failpoints.lives import Lives
from tests.chaos.failpoints.verdicts import assert_whole

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 40
TRIES = 20
LEASE_S = 3.0
"""How long a claim lasts in a tiny run."""


def test_a_writer_that_dies_between_the_two_renames_of_a_folder_writes_it_whole_when_it_comes_back(
    tmp_path: Path,
) -> None:
    lives, folder = Lives(tmp_path / "failpoints", "trainer"), tmp_path / "run" / "base"
    assert lives.run("folder", str(folder)) == 0
    assert lives.killed_at(MOVED, "folder", str(folder))
    assert not folder.exists(), "a reader finds none, and no mixture"
    assert lives.run("folder", str(folder)) == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "0", "b": "0"}
    assert [path.name for path in folder.parent.iterdir()] == ["base"]


def request_for(method: str, step: int) -> bytes:
    """What a method is asked: an empty request is refused before the point. Version `step` is held after that step."""
    match method.rpartition("/")[2]:
        case "Score":
            return reward_pb2.ScoreRequest(group=GROUP.to_pb(builders.group())).SerializeToString()
        case "AbortWeights":
            return rollout_pb2.AbortWeightsRequest(publication_id="another").SerializeToString()
        case "SaveWeights":
            return trainer_pb2.SaveWeightsRequest(version=step).SerializeToString()
        case "GetChecksums":
            return trainer_pb2.GetChecksumsRequest(version=step, format="another").SerializeToString()
        case _:
            return b""


async def strike_in_a_call(armed: ArmedRun, method: str) -> None:
    """Calls until the service is killed: a version may be released before the call comes."""
    service, role = CALLED[method]
    name = f"{service}.rpc.served.{method.rpartition('/')[2]}"
    armed.arm(name, 0)
    instance = {"rollout": "rollout-0", "reward": "reward-0"}.get(service, service)
    metadata = (("authorization", f"Bearer {(armed.run.run_dir / 'run' / 'tokens' / role).read_text()}"),)
    for _ in range(TRIES):
        with pytest.raises(grpc.aio.AioRpcError):
            process = json.loads(RunPaths(armed.run.run_dir).process(instance).read_text())
            async with channel(f"unix:{process['grpc_socket']}") as opened:
                request = request_for(method, armed.run.steps())
                await opened.unary_unary(method)(request, metadata=metadata, timeout=30)
        if armed.wait_for(name, 1):
            return
    raise AssertionError(f"{name} was not struck" + armed.run.logs())


async def strike_as_garbage_is_set_aside(armed: ArmedRun, point: str) -> None:
    """Adds what is no message to the scored groups."""
    armed.arm(f"trainer.{point}", 0)
    url = json.loads((armed.run.run_dir / "run" / "broker.json").read_text())["url"]
    broker = RedisBroker(url, "tiny")
    await broker.add(StreamName.SCORED, b"garbage")
    await broker.close()
    assert await asyncio.to_thread(armed.wait_for, f"trainer.{point}", 30), f"{point}" + armed.run.logs()


def strike_as_a_claim_is_taken_again(armed: ArmedRun) -> None:
    """Stops the trainer for longer than its claims last, while it holds groups of an incomplete batch."""
    name = f"trainer.{CLAIMED}"
    armed.arm(name, 0)
    for _ in range(TRIES):
        pid = armed.run.pid("trainer")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(LEASE_S + 1)
        os.kill(pid, signal.SIGCONT)
        # It may have renewed its claims first, or have held none.
        if armed.wait_for(name, 1.5):
            return
    raise AssertionError(f"{name} was not struck" + armed.run.logs())


@pytest.mark.long
async def test_services_that_die_in_calls_over_garbage_and_late_lose_and_double_nothing(tmp_path: Path) -> None:
    before = undisturbed(tmp_path / "undisturbed", SCORED, steps=STEPS)
    armed = ArmedRun(tmp_path / "struck", SCORED, STEPS)
    armed.start()
    try:
        for method in CALLED:
            armed.wait_for_steps(1)
            await strike_in_a_call(armed, method)
        for point in SET_ASIDE:
            armed.wait_for_steps(1)
            await strike_as_garbage_is_set_aside(armed, point)
        armed.wait_for_steps(1)
        strike_as_a_claim_is_taken_again(armed)
        armed.wait_for_steps(1)
        armed.hurry()
        armed.run.finish()
    finally:
        armed.run.close()
    assert_whole(armed.run.check(), before.weights_sha256, STEPS)
