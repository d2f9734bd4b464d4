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
    log.append([{"kind": "undo", "pair": str(number), "annotator": name} for name in ("a", "b")])
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


@pytest.mark.parametrize("point", ["vote.written", "vote.synced"])
def test_a_killed_write_leaves_whole_lines_and_all_that_were_answered(tmp_path: Path, points: Path, point: str) -> None:
    (points / "armed" / f"orchestrator.{point}").write_text("1")
    made = write(tmp_path, points)
    assert (made.returncode, made.stdout.split()) == (-signal.SIGKILL, [b"0"]), made.stderr
    log = VoteLog(tmp_path)
    # The second write was not answered: the kernel has it, as only this process died.
    assert [record["pair"] for record in log.records] == ["0", "0", "1", "1"]
    log.close()


@pytest.mark.parametrize("point", ["sync.before", "sync.done"])
def test_a_killed_start_leaves_votes_that_the_next_start_adds_to(tmp_path: Path, points: Path, point: str) -> None:
    assert write(tmp_path, points).returncode == 0
    (points / "armed" / f"orchestrator.{point}").write_text("0")
    killed = write(tmp_path, points)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b""), killed.stderr
    assert (points / "struck" / f"orchestrator.{point}").exists()
    assert write(tmp_path, points).returncode == 0
    log = VoteLog(tmp_path)
    assert [record["pair"] for record in log.records] == [*"001122"] * 2
    log.close()
