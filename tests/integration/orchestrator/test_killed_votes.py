"""Votes whose process is killed while it writes them are there whole, or not at all; what was answered is there."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.services.orchestrator.annotation.vote_log import VoteLog

WRITES = """
import sys
from pathlib import Path
from headrace.services.orchestrator.annotation.vote_log import VoteLog
from headrace.wire.process import failpoints
failpoints.install("orchestrator", sys.argv[2])
log = VoteLog(Path(sys.argv[1]))
for number in range(3):
    log.append({"kind": "undo", "pair": str(number), "annotator": "a"})
    print(number, flush=True)
"""


@pytest.fixture
def points(tmp_path: Path) -> Path:
    """The folder of the failpoints."""
    for kind in ("armed", "reached", "struck"):
        (tmp_path / "points" / kind).mkdir(parents=True)
    return tmp_path / "points"


def write(run_dir: Path, points: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-P", "-c", WRITES, str(run_dir), str(points)], capture_output=True, check=False
    )


@pytest.mark.parametrize("point", ["line.appended", "line.synced"])
def test_a_killed_write_leaves_whole_lines_and_all_that_were_answered(tmp_path: Path, points: Path, point: str) -> None:
    (points / "armed" / f"orchestrator.{point}").write_text("1")
    made = write(tmp_path, points)
    assert (made.returncode, made.stdout.split()) == (-signal.SIGKILL, [b"0"]), made.stderr
    log = VoteLog(tmp_path)
    # The second write was not answered: the kernel has it, as only this process died.
    assert [record["pair"] for record in log.records()] == ["0", "1"]
    log.close()
