"""A worker dies around an operation on its stream that runs reach by chance; its next life ends the group once."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from headrace.wire.contracts import Message, Tombstone, decode, encode
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import MAX_FAILURES
from tests import builders
from tests.valkey import Valkey

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
FAILS = {"stream.before_fail": MAX_FAILURES + 1, "stream.failed": MAX_FAILURES}
"""Point -> calls of a handler that always fails: a failure that was not counted before the death costs one more."""
HANDS_BACK = ("stream.before_release", "stream.released")
RENEWS = ("stream.before_renew", "stream.renewed")


ALONE_PY = Path(__file__).with_name("alone.py")


@dataclass(frozen=True, slots=True)
class Lives:
    """What `alone.py` does, with the folder of its failpoints."""

    points: Path

    def __post_init__(self) -> None:
        for kind in ("armed", "reached", "struck"):
            (self.points / kind).mkdir(parents=True, exist_ok=True)

    def run(self, *arguments: str) -> int:
        """The exit status of one life."""
        command = [sys.executable, str(ALONE_PY), str(self.points), *arguments]
        return subprocess.run(command, timeout=120, check=False).returncode

    def killed_at(self, point: str, *arguments: str) -> bool:
        """Whether a life was killed at the point."""
        name = f"reward.{point}"
        (self.points / "armed" / name).write_text("0")
        return self.run(*arguments) == -signal.SIGKILL and (self.points / "struck" / name).exists()

    def calls(self) -> int:
        """How often a handler was called, in all lives."""
        return (self.points / "calls").read_text().count("\n")


@pytest_asyncio.fixture
async def broker(valkey: Valkey) -> AsyncIterator[RedisBroker]:
    opened = RedisBroker(valkey.url, "test")
    yield opened
    await opened.close()


async def issue(broker: RedisBroker) -> None:
    """One group for the service's worker."""
    await broker.add(StreamName.ROLLOUTS, encode(Message(header=builders.header(3), body=builders.group(3))))


async def ended(broker: RedisBroker) -> list[Message]:
    """What came of it; nothing is left before the worker."""
    assert not await broker.live(StreamName.ROLLOUTS)
    return [decode(data) for data in await broker.live(StreamName.SCORED)]


@pytest.mark.parametrize("point", FAILS)
async def test_a_worker_killed_while_counting_a_failure_buries_its_group_once(
    valkey: Valkey, broker: RedisBroker, tmp_path: Path, point: str
) -> None:
    lives = Lives(tmp_path)
    await issue(broker)
    assert lives.killed_at(point, "fail", valkey.url, "one")
    assert lives.run("fail", valkey.url, "one") == 0
    (scored,) = await ended(broker)
    assert isinstance(scored.body, Tombstone) and scored.header.group_index == 3
    assert len(await broker.live(StreamName.DEAD)) == 1
    assert lives.calls() == FAILS[point]


@pytest.mark.parametrize(
    ("point", "does", "calls"), [*((point, "hand_back", 2) for point in HANDS_BACK), *((p, "long", 2) for p in RENEWS)]
)
async def test_a_worker_killed_while_releasing_or_renewing_a_claim_finishes_it_later(
    valkey: Valkey, broker: RedisBroker, tmp_path: Path, point: str, does: str, calls: int
) -> None:
    lives = Lives(tmp_path)
    await issue(broker)
    assert lives.killed_at(point, does, valkey.url, "one")
    assert lives.run(does, valkey.url, "one") == 0
    (scored,) = await ended(broker)
    assert scored.header.group_index == 3 and not isinstance(scored.body, Tombstone)
    assert lives.calls() == calls and not await broker.live(StreamName.DEAD)


async def test_a_claim_survives_the_deaths_of_two_workers_in_a_row(
    valkey: Valkey, broker: RedisBroker, tmp_path: Path
) -> None:
    lives = Lives(tmp_path)
    await issue(broker)
    assert lives.killed_at("stream.read", "settle", valkey.url, "one")
    assert lives.killed_at("stream.claimed", "settle", valkey.url, "two")
    assert lives.run("settle", valkey.url, "three") == 0
    (scored,) = await ended(broker)
    assert scored.header.group_index == 3 and lives.calls() == 1
