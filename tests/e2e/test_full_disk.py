"""A real disk that fills under a run: it is named, nothing is lost, and the final weights are bit-equal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import DEADLINE_S
from tests.e2e.paced import PacedRun
from tests.e2e.undisturbed import STEPS
from tests.small_disk import SmallDisk, small_disk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[PacedRun, SmallDisk]]:
    made = PacedRun(tmp_path / "run", steps=STEPS)
    with small_disk(made.run_dir, 60) as disk:
        yield made, disk
        made.close()


def reserve(mib: int) -> tuple[str, str]:
    return "--trainer.disk-reserve-mib", str(mib)


def test_a_full_disk_ends_the_run_in_one_sentence_and_costs_no_bit(
    run: tuple[PacedRun, SmallDisk], undisturbed: str
) -> None:
    tiny, disk = run
    tiny.begin(*reserve(0))
    tiny.wait_for_step(3)
    disk.fill()
    assert tiny.process is not None
    tiny.process.wait(DEADLINE_S)
    said = (tiny.folder / "stderr.log").read_text()
    assert tiny.process.returncode == 3, said
    assert "Traceback" not in said and "started again" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("failed")]
    assert f"{tiny.run_dir}/" in line and "the disk is full" in line and " free" in line and "--resume" in line
    disk.make_room()
    tiny.begin("--resume", *reserve(0))
    tiny.hurry()
    tiny.finish()
    assert tiny.check()["weights_sha256"] == undisturbed
