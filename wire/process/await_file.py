"""Waits for files that another process writes, and reports in one line which file is missing and what writes it.

    python -P -m headrace.wire.process.await_file --seconds 3600 --writer "container `prepare` of job/trainer" FILE...

For a process that must not start before its files exist, where nothing orders the starts.
Exit code 0: all are there; 1: not in time.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_LOOK_S = 0.5
_PRINT_S = 30.0
_LATE_S = 60.0


def await_files(paths: Sequence[Path], seconds: float, writer: str) -> bool:
    """Returns whether all files exist within `seconds`; while one is missing, names it every `_PRINT_S` seconds.

    After `_LATE_S` seconds the line adds that the writer may have failed: nothing else would say so here.
    """
    began, printed_at = time.monotonic(), 0.0
    end = began + seconds
    while missing := [path for path in paths if not path.is_file()]:
        now = time.monotonic()
        if now > end:
            _say(f"gave up after {seconds:g} s: there is no {missing[0]}; it is written by {writer}: see its log")
            return False
        if now - printed_at > _PRINT_S:
            printed_at = now
            hint = f"; if {writer} has failed, it never comes: see its log" if now - began > _LATE_S else ""
            _say(f"waiting for {missing[0]}, written by {writer}, {end - now:.0f} s more{hint}")
        time.sleep(_LOOK_S)
    return True


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main() -> None:
    """Entry point of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--writer", required=True)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    sys.exit(0 if await_files(options.files, options.seconds, options.writer) else 1)


if __name__ == "__main__":
    main()
