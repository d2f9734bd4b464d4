"""Moves `time.time` and `time.time_ns` of a Python process by the seconds in the file that MOVED_CLOCK names.

Python imports it at its start from PYTHONPATH. It does not move `datetime.now` (the log's times), nor what C code takes
for the date: OpenSSL, times of files, and gRPC, whose Python part is left with the time that its core has.
"""

import os
import sys
import time
from pathlib import Path

_LOOK_S = 0.2
_file = Path(os.environ["MOVED_CLOCK"])
_time, _time_ns = time.time, time.time_ns
_seen = [float("-inf"), 0.0]
"""Monotonic time of the last look, and what the file said."""


def _distance() -> float:
    if str(sys._getframe(2).f_globals.get("__name__")).startswith("grpc"):
        return 0.0
    now = time.monotonic()
    if now - _seen[0] > _LOOK_S:
        _seen[:] = now, float(_file.read_text())
    return _seen[1]


def _moved() -> float:
    return _time() + _distance()


def _moved_ns() -> int:
    return _time_ns() + int(_distance() * 1e9)


time.time, time.time_ns = _moved, _moved_ns
