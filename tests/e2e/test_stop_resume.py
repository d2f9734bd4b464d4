"""A run that is stopped and resumed: the final weights are bit-equal, and the history is in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.paced import PacedRun
from tests.e2e.undisturbed import STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[PacedRun]:
    made = PacedRun(tmp_path / "run", steps=STEPS)
    yield made
    made.close()


def test_stop_and_resume_changes_no_bit(run: PacedRun, undisturbed: str) -> None:
    run.begin()
    run.wait_for_step(2)
    assert run.stop() != 0
    assert run.check()["steps"] < STEPS
    run.begin("--resume")
    run.hurry()
    run.finish()
    assert run.check()["weights_sha256"] == undisturbed
