"""For a soak: a service says which lines of the source hold the memory that it has taken since its warm-up.

`HEADRACE_MEMORY_TRACE=SERVICE:FILE` traces the processes of that service: from `_WARM_S` on, each `_EVERY_S` seconds,
FILE has the lines that hold most more than they did at the first look. Tracing makes a process slower.
"""

import threading
import tracemalloc
from pathlib import Path

VARIABLE = "HEADRACE_MEMORY_TRACE"
_WARM_S = 60.0
_EVERY_S = 30.0
_FRAMES = 4
_LINES = 25
_OWN = [tracemalloc.Filter(False, file, all_frames=True) for file in (tracemalloc.__file__, __file__)]
"""What the tracing itself holds says nothing of the service."""


def install(service: str, setting: str) -> None:
    """Begins to trace if `setting`, the variable's value, names this service."""
    wanted, _, file = setting.partition(":")
    if wanted == service and file:
        tracemalloc.start(_FRAMES)
        threading.Thread(target=_watch, args=(Path(file),), name="memory-trace", daemon=True).start()


def _watch(file: Path) -> None:
    pause = threading.Event()
    pause.wait(_WARM_S)
    first = _snapshot()
    while not pause.wait(_EVERY_S):
        grown = _snapshot().compare_to(first, "traceback")
        parts = []
        for one in grown[:_LINES]:
            parts.append(f"{one.size_diff / 1024:+.1f} KiB in {one.count_diff:+d} blocks")
            parts += one.traceback.format()
        file.write_text("\n".join(parts) + "\n")


def _snapshot() -> tracemalloc.Snapshot:
    return tracemalloc.take_snapshot().filter_traces(_OWN)
