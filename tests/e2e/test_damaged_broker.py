"""The broker's folder is a cache: however it is damaged, the final weights are bit-equal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.rundir.events import read_events
from tests.e2e.broker_log import DAMAGES, flip_commands
from tests.e2e.harness import TinyRun
from tests.e2e.undisturbed import STEPS
from tests.variants import keep

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
REFUSED = {"commands flipped"}
"""The server does not start with it."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    made = TinyRun(tmp_path / "run", steps=STEPS)
    yield made
    made.close()


def put_aside(run: TinyRun) -> list[str]:
    return sorted(path.name for path in run.run_dir.glob("broker.damaged-*"))


def is_reported(run: TinyRun) -> bool:
    """In the one line that says so."""
    lines = (run.folder / "stderr.log").read_text().splitlines()
    return len([line for line in lines if "is now broker.damaged-1, and it starts empty" in line]) == 1


@pytest.mark.parametrize("damage", keep({"messages flipped"}, DAMAGES))
def test_a_broker_killed_over_a_damaged_folder_costs_no_bit(run: TinyRun, undisturbed: str, damage: str) -> None:
    run.start()
    run.wait_for_step(2)
    run.hold_rollouts_back()
    run.kill_broker_over(DAMAGES[damage])
    run.go_on("reward-0")
    run.finish()
    assert run.check()["weights_sha256"] == undisturbed
    assert put_aside(run) == (["broker.damaged-1"] if damage in REFUSED else [])
    assert is_reported(run) == (damage in REFUSED)
    if damage == "messages flipped":
        issued = [event for event in read_events(run.run_dir) if event["event"] == "issued"]
        assert any(event["attempt"] for event in issued), "no damaged message was noticed"


@pytest.mark.long
def test_a_run_is_resumed_over_a_damaged_folder(run: TinyRun, undisturbed: str) -> None:
    run.start()
    run.wait_for_step(2)
    assert run.stop() != 0
    flip_commands(run.run_dir / "broker")
    run.start("--resume")
    run.finish()
    assert run.check()["weights_sha256"] == undisturbed
    assert put_aside(run) == ["broker.damaged-1"] and is_reported(run)
