"""Waits for files that another process writes, and reports in one line which file is missing and what writes it.

    python -P -m headrace.wire.process.await_file --seconds 3600 --writer "container `prepare` of job/trainer" FILE...

For a process that must not start before its files exist, where nothing orders the starts.
Exit code 0: all are there; 1: not in time.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_S = 0.5
_PRINT_S = 30.0
_LATE_S = 60.0


def await_end_of(problem: Callable[[], str], seconds: float) -> bool:
    """Returns whether `problem` is empty within `seconds`; while it is not, prints it every `_PRINT_S` seconds.

    After `_LATE_S` seconds the line adds that what is awaited may have failed: nothing else would say so here.
    """
    began, next_s = time.monotonic(), 0.0
    while words := problem():
        waited = time.monotonic() - began
        if waited > seconds:
            sys.stderr.write(f"gave up after {seconds:g} s: {words}: see its log\n")
            return False
        if waited >= next_s:
            next_s = waited + _PRINT_S
            hint = "; if that has failed, it never comes: see its log" if waited > _LATE_S else ""
            sys.stderr.write(f"waiting, {seconds - waited:.0f} s more: {words}{hint}\n")
        time.sleep(_LOOK_S)
    return True


def main() -> None:
    """Entry point of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--writer", required=True)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()

    def missing() -> str:
        path = next((path for path in options.files if not path.is_file()), None)
        return f"there is no {path}; it is written by {options.writer}" if path else ""

    sys.exit(0 if await_end_of(missing, options.seconds) else 1)


if __name__ == "__main__":
    main()
