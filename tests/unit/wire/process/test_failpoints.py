"""A failpoint kills the process that reaches it, once, and only where a test has armed it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.wire.process import failpoints

POINT = "journal.written"
REACHES = """
import sys
from headrace.wire.process import failpoints
failpoints.install("trainer", sys.argv[1])
for number in range(4):
    print(number, flush=True)
    failpoints.reach("journal.written")
    failpoints.reach("journal.synced")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for kind in ("armed", "reached", "struck"):
        (tmp_path / kind).mkdir()
    return tmp_path


def life(folder: str | Path) -> tuple[int, int]:
    """Exit status of a process that reaches the point four times, and how often it came to it."""
    made = subprocess.run([sys.executable, "-P", "-c", REACHES, str(folder)], capture_output=True, check=False)
    return made.returncode, len(made.stdout.split())


@pytest.mark.parametrize("passes", [0, 2])
def test_an_armed_point_kills_once_after_the_passes(folder: Path, passes: int) -> None:
    (folder / "armed" / f"trainer.{POINT}").write_text(str(passes))
    (folder / "armed" / "rollout.journal.synced").write_text("0")
    assert life(folder) == (-signal.SIGKILL, passes + 1)
    assert [path.name for path in (folder / "struck").iterdir()] == [f"trainer.{POINT}"]
    assert life(folder) == (0, 4)
    assert {path.name for path in (folder / "reached").iterdir()} == {f"trainer.{POINT}", "trainer.journal.synced"}


def test_a_process_without_a_folder_passes_every_point(folder: Path) -> None:
    (folder / "armed" / f"trainer.{POINT}").write_text("0")
    assert life("") == (0, 4)
    assert not list((folder / "reached").iterdir())


def test_a_process_that_has_installed_none_passes() -> None:
    failpoints.reach(POINT)
