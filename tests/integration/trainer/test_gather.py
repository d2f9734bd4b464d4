"""A trainer of two ranks gathers a snapshot on rank 0: one that never joins is reported at the deadline."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_a_rank_that_never_joins_is_reported_at_the_deadline(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.integration.trainer.gather_rank", str(tmp_path / "store")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    gathers, late = (
        subprocess.Popen([*command, rank], stderr=subprocess.PIPE, text=True, env=environment) for rank in "01"
    )
    try:
        _, errors = gathers.communicate(timeout=120)
        assert gathers.returncode == 1
        # The second is what gloo calls the end of a wait that began after the one that ran out.
        assert re.search(r"TransientError: the gather of .*(Timed out waiting 3000ms|Application timeout)", errors), (
            errors
        )
        assert late.poll() is None, "it ended with the other"
    finally:
        for process in (gathers, late):
            process.kill()
            process.communicate(timeout=10)
