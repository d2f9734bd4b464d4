"""Failpoints that no run of the campaign reaches, each hit by SIGKILL in a real process all the same."""

import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from headrace.wire.access.roles import Role
from headrace.wire.contracts import Message, Tombstone, decode, encode
from headrace.wire.contracts.codec import group_to_pb
from headrace.wire.rpc import channel
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import MAX_FAILURES
from headrace.wire.v1 import reward_pb2
from tests import builders
from tests.chaos.failpoints.armed_run import SCORED, ArmedRun
from tests.chaos.failpoints.campaign import undisturbed
from tests.chaos.failpoints.expected import ALONE, READ
from tests.e2e.test_doors import addresses
from tests.valkey import Valkey

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
ALONE_PY = Path(__file__).with_name("alone.py")
STEPS = 12
SCORED_GROUP = reward_pb2.ScoreRequest(group=group_to_pb(builders.group())).SerializeToString()
"""What `Score` is asked: an empty request is refused before the point."""


@pytest.fixture
def points(tmp_path: Path) -> Path:
    """The folder of the failpoints."""
    for kind in ("armed", "reached", "struck"):
        (tmp_path / "failpoints" / kind).mkdir(parents=True)
    return tmp_path / "failpoints"


def run(points: Path, *arguments: str) -> int:
    return subprocess.run([sys.executable, str(ALONE_PY), str(points), *arguments], timeout=120).returncode


def killed_at(points: Path, point: str, *arguments: str) -> bool:
    """Whether a process was killed at the point."""
    (points / "armed" / f"alone.{point}").write_text("0")
    return run(points, *arguments) == -signal.SIGKILL and (points / "struck" / f"alone.{point}").exists()


# A failure that was not counted before the death costs one more call; one that was counted does not.
@pytest.mark.parametrize(
    ("point", "calls"), [("stream.before_fail", MAX_FAILURES + 1), ("stream.failed", MAX_FAILURES)]
)
async def test_a_worker_that_dies_while_it_counts_a_failure_buries_its_group_once(
    valkey: Valkey, points: Path, point: str, calls: int
) -> None:
    assert point in ALONE
    broker = RedisBroker(valkey.url, "test")
    await broker.add(StreamName.ROLLOUTS, encode(Message(header=builders.header(3), body=builders.group(3))))
    assert killed_at(points, point, "worker", valkey.url)
    assert run(points, "worker", valkey.url) == 0
    (scored,) = [decode(data) for data in await broker.live(StreamName.SCORED)]
    assert isinstance(scored.body, Tombstone) and scored.header.group_index == 3
    assert len(await broker.live(StreamName.DEAD)) == 1 and not await broker.live(StreamName.ROLLOUTS)
    assert (points / "calls").read_text() == "3\n" * calls
    await broker.close()


def test_a_writer_that_dies_between_the_two_renames_of_a_folder_writes_it_whole_when_it_comes_back(
    points: Path, tmp_path: Path
) -> None:
    assert "folder.moved_aside" in ALONE
    folder = tmp_path / "run" / "base"
    assert run(points, "folder", str(folder)) == 0
    assert killed_at(points, "folder.moved_aside", "folder", str(folder))
    assert not folder.exists(), "a reader finds none, and no mixture"
    assert run(points, "folder", str(folder)) == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "0", "b": "0"}
    assert [path.name for path in folder.parent.iterdir()] == ["base"]


@pytest.mark.long
async def test_services_that_die_in_peoples_calls_lose_and_double_nothing(tmp_path: Path) -> None:
    before = undisturbed(tmp_path / "undisturbed", SCORED, steps=STEPS)
    armed = ArmedRun(tmp_path / "struck", SCORED, STEPS)
    armed.start()
    try:
        armed.wait_for_steps(1)
        for method, service in READ.items():
            name = f"{service}.rpc.served.{method.rpartition('/')[2]}"
            armed.arm(name, 0)
            instance = {"rollout": "rollout-0", "reward": "reward-0"}.get(service, service)
            token = (armed.run.run_dir / "run" / "tokens" / Role.OPERATOR).read_text()
            with pytest.raises(grpc.aio.AioRpcError):
                async with channel(addresses(armed.run)[instance]) as opened:
                    request = SCORED_GROUP if method.endswith("/Score") else b""
                    metadata = (("authorization", f"Bearer {token}"),)
                    await opened.unary_unary(method)(request, metadata=metadata, timeout=30)
            assert armed.wait_for(name, 10), name
            armed.wait_for_steps(1)
        armed.hurry()
        armed.run.finish()
    finally:
        armed.run.close()
    verdict = armed.run.check()
    assert verdict["weights_sha256"] == before.weights_sha256
    groups = verdict["groups"]
    assert groups["issued"] == groups["trained"] + sum(groups["dropped"].values()) + groups["open"]
    assert groups["trained"] == STEPS * 4
