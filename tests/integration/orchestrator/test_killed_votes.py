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
from headrace.wire import failpoints
failpoints.install("orchestrator", sys.argv[2])
log = VoteLog(Path(sys.argv[1]))
for number in range(3):
    log.append([{"kind": "undo", "pair": str(number), "annotator": name} for name in ("a", "b")])
    print(number, flush=True)
"""


@pytest.mark.parametrize("point", ["vote.written", "vote.synced"])
def test_a_killed_write_leaves_whole_lines_and_all_that_were_answered(tmp_path: Path, point: str) -> None:
    for kind in ("armed", "reached", "struck"):
        (tmp_path / kind).mkdir()
    (tmp_path / "armed" / f"orchestrator.{point}").write_text("1")
    made = subprocess.run(
        [sys.executable, "-P", "-c", WRITES, str(tmp_path), str(tmp_path)], capture_output=True, check=False
    )
    assert (made.returncode, made.stdout.split()) == (-signal.SIGKILL, [b"0"]), made.stderr
    log = VoteLog(tmp_path)
    # The second write was not answered: the kernel has it, as only this process died.
    assert [record["pair"] for record in log.records] == ["0", "0", "1", "1"]
    log.close()
