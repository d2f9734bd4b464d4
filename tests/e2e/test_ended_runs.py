"""How a run ended is known to whoever starts it again, and keeps nobody from going on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.app import run
from headrace.services.orchestrator.state.store import Store
from tests.e2e.harness import DEADLINE_S, TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
ENDLESS = 1_000_000
"""Steps: the run is stopped long before its end, whatever the machine's speed."""


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[TinyRun]:
    made = TinyRun(tmp_path / "a", steps=ENDLESS, staleness=1, deterministic=False, replicas=1)
    yield made
    made.close()


def stored_phase(tiny: TinyRun) -> bytes | None:
    store = Store(tiny.run_dir / "state.sqlite")
    try:
        return store.get("phase")
    finally:
        store.close()


@pytest.mark.long
def test_a_stopped_and_a_finished_run_go_on_when_they_are_started_again(tiny: TinyRun) -> None:
    tiny.start()
    tiny.wait_for_step(1)
    assert run(["stop", str(tiny.run_dir)]) == 0
    assert tiny.process is not None
    tiny.process.wait(DEADLINE_S)
    assert stored_phase(tiny) == b"stopped"
    steps = tiny.steps() + 5
    for _ in range(2):
        tiny.start("--resume", f"--run.max-steps={steps}")
        assert tiny.finish()["steps"] == steps and stored_phase(tiny) == b"finished"
    tiny.check()
