"""A run whose output cannot be written any more goes on, and says so where it still can."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = """
import sys
from headrace.inspect.output import LastingOutput
output = LastingOutput.choose(json=sys.argv[1] == "json")
for number in range(3):
    output.say(f"line {number}")
output.result("{}")
open(sys.argv[2], "w").write("came to its end")
"""


def lost(kind: str) -> int:
    """A descriptor that takes nothing."""
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY)
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("kind", ["closed", "full"])
@pytest.mark.parametrize("how", ["text", "json"])
def test_the_run_comes_to_its_end_and_names_the_reason_once(tmp_path: Path, kind: str, how: str) -> None:
    taken = lost(kind)
    # With `json` text goes to stderr: nothing is left to complain to.
    out, err = (subprocess.PIPE, taken) if how == "json" else (taken, subprocess.PIPE)
    argv = [sys.executable, "-c", SAYS, how, str(tmp_path / "end")]
    ended = subprocess.run(argv, text=True, timeout=60, stdout=out, stderr=err)
    os.close(taken)
    assert ended.returncode == 0 and (tmp_path / "end").read_text() == "came to its end"
    if how == "json":
        assert json.loads(ended.stdout) == {}
    else:
        reason = "No space left on device" if kind == "full" else "nothing reads it any more"
        (line,) = ended.stderr.splitlines()
        assert line.startswith(f"error: the output cannot be written: {reason}; ")
