"""Each service's append-only event log: what the history checker reads after the run, or after the crash."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.wire.rundir.layout import RunPaths


class EventLog:
    """Appends one JSON line an event to `RUN/events/SERVICE-LIFE.jsonl`.

    A line is handed to the kernel before `append` returns: it survives the death of the process, not of the machine.
    """

    def __init__(self, run_dir: Path, service: str, life: str | int) -> None:
        folder = RunPaths(run_dir).events
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{service}-{life}.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, event: str, **fields: Any) -> None:
        """Writes one event; `fields` are JSON values."""
        line = json.dumps({"t": round(time.time(), 3), "event": event, **fields}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


def read_events(run_dir: Path) -> Iterator[dict[str, Any]]:
    """All events of a run, file by file, each with `source` (the file's stem). A torn last line is passed over."""
    for path in sorted(RunPaths(run_dir).events.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue
            yield {"source": path.stem, **event}
