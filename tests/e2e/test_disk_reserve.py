"""A step that the disk has no room to record is not begun: the run pauses, and goes on by itself."""

import pytest

from tests.e2e.paced import PacedRun
from tests.e2e.test_full_disk import reserve, run
from tests.e2e.undisturbed import STEPS
from tests.small_disk import SmallDisk

__all__ = ["run"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
RESERVE_MIB = 20


def test_the_run_pauses_before_a_step_without_its_reserve_and_goes_on_by_itself(
    run: tuple[PacedRun, SmallDisk], undisturbed: str
) -> None:
    tiny, disk = run
    tiny.begin(*reserve(RESERVE_MIB))
    tiny.wait_for_step(2)
    disk.fill(leave=(RESERVE_MIB - 4) * 2**20)
    tiny.wait_until(lambda: "room on the disk" in str(tiny.status().get("trainer")), "the pause")
    paused = tiny.steps()
    said = str(tiny.status()["trainer"])
    assert "MiB free" in said and "MiB needed" in said
    assert tiny.steps() == paused < STEPS
    disk.make_room()
    tiny.hurry()
    tiny.finish()
    assert tiny.check()["weights_sha256"] == undisturbed
