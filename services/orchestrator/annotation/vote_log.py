"""`RUN/annotations/votes.jsonl`: all annotator actions, one per line, on disk before the request is answered."""

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path

from headrace.services.orchestrator.annotation.ballots import CHOICES
from headrace.services.orchestrator.annotation.pairs import CompletionPair, Record
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.host.regular_file import read_regular
from headrace.wire.process import failpoints
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths


class VoteLog:
    """Append-only log with a single writer, enforced by `flock`."""

    def __init__(self, run_dir: Path) -> None:
        """Raises ConfigError if another process holds the lock, DataError naming the first invalid line."""
        folder, self.path = RunPaths(run_dir).annotations, RunPaths(run_dir).votes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.records: list[Record] = self._load()
            atomic.sync(folder)  # Otherwise the file's name could be lost in a crash of the machine.
        except BlockingIOError:
            os.close(self._file)
            raise ConfigError(f"{self.path} is in use: the page is already served for this run") from None
        except BaseException:
            os.close(self._file)
            raise

    def append(self, records: Sequence[Record]) -> None:
        """Appends the records and returns once they are on disk. Raises OSError and writes none of them on failure."""
        data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        size = os.fstat(self._file).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            failpoints.reach("vote.written")
            os.fsync(self._file)
            failpoints.reach("vote.synced")
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def close(self) -> None:
        """Closes the file and releases the lock."""
        os.close(self._file)

    def _load(self) -> list[Record]:
        data = read_regular(self.path)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):  # A crash truncated the last line: that request was never answered.
            os.ftruncate(self._file, whole)
            os.fsync(self._file)
        return [self._record(number, line) for number, line in enumerate(data[:whole].splitlines(), start=1)]

    def _record(self, number: int, line: bytes) -> Record:
        try:
            record: Record = json.loads(line)
            if _is_act(record):
                return record
        except (ValueError, KeyError, TypeError):
            pass
        raise DataError(f"{self.path}:{number}: not a line of votes; move the file away to start over")


def _is_act(record: Record) -> bool:
    """Whether the record is well-formed; raises KeyError, TypeError or ValueError for some that are not."""
    if record["kind"] == "pair":
        CompletionPair.from_record(record)
        return True
    is_complete = isinstance(record["pair"], str) and isinstance(record["annotator"], str)
    return is_complete and (record["kind"] == "undo" or (record["kind"] == "vote" and record["choice"] in CHOICES))
