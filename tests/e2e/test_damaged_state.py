"""The orchestrator's database is rebuilt: however it is damaged, the final weights are bit-equal."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.wire.rundir.events import read_events
from tests.e2e.harness import TinyRun
from tests.e2e.undisturbed import STEPS
from tests.variants import keep

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    made = TinyRun(tmp_path / "run", steps=STEPS)
    yield made
    made.close()


def garbage(data: bytes) -> bytes:
    return random.Random(1).randbytes(len(data) or 5000)


def truncated(data: bytes) -> bytes:
    return garbage(b"")[:1000] if len(data) < 8192 else data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return bytes(one ^ 0xFF if index % 4096 == 7 else one for index, one in enumerate(data))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {"garbage": garbage, "truncated": truncated, "pages flipped": flipped}


def damage(run: TinyRun, how: Callable[[bytes], bytes]) -> None:
    """Damages the file, and its log in the same way: that has the newest pages whole."""
    for path in run.run_dir.glob("state.sqlite*"):
        if not path.name.endswith("-shm"):
            path.write_bytes(how(path.read_bytes()))


def check_reported(run: TinyRun) -> None:
    found = [event for event in read_events(run.run_dir) if event["event"] == "state_damaged"]
    assert [event["moved_to"] for event in found] == [str(run.run_dir / "state.damaged-1")]
    assert "state_damaged" in (run.run_dir / "logs" / "orchestrator.log").read_text()
    assert (run.run_dir / "state.damaged-1").is_file()


@pytest.mark.parametrize("how", keep({"garbage"}, DAMAGES))
def test_a_run_is_resumed_over_a_damaged_state(run: TinyRun, undisturbed: str, how: str) -> None:
    run.start()
    run.wait_for_step(3)
    assert run.stop() != 0
    damage(run, DAMAGES[how])
    run.start("--resume")
    run.finish()
    assert run.check()["weights_sha256"] == undisturbed
    check_reported(run)


@pytest.mark.long
def test_an_orchestrator_killed_over_a_damaged_state_costs_no_bit(run: TinyRun, undisturbed: str) -> None:
    run.start()
    run.wait_for_step(3)
    os.kill(run.pid("orchestrator"), signal.SIGSTOP)
    damage(run, garbage)
    run.kill("orchestrator")
    run.finish()
    assert run.check()["weights_sha256"] == undisturbed
    check_reported(run)
