"""`RUN/annotations/votes.jsonl`: all annotator actions, one per line, on disk before the request is answered."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

from headrace.services.orchestrator.annotation.pairs import Record
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import atomic, jsonl
from headrace.wire.rundir.layout import RunPaths


class VoteLog:
    """Append-only log with a single writer, enforced by `flock`."""

    def __init__(self, run_dir: Path) -> None:
        """Raises ConfigError if another process holds the lock, or the folder cannot be written."""
        folder, self.path = RunPaths(run_dir).annotations, RunPaths(run_dir).votes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = self.path.open("ab")
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ConfigError(f"{self.path} is in use: the page is already served for this run") from None
        jsonl.repair(self.path)
        atomic.sync(folder)  # Otherwise the file's name could be lost in a crash of the machine.

    def records(self) -> Iterator[Record]:
        """All actions so far."""
        return jsonl.read(self.path)

    def append(self, record: Record) -> None:
        """Appends the record and returns once it is on disk. Raises OSError and writes nothing on failure."""
        jsonl.append(self.path, record, durable=True)

    def close(self) -> None:
        """Releases the lock."""
        self._lock.close()
