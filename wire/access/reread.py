"""A value that is read from files, and read again when they have changed: tokens and certificates are rotated."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from headrace.wire.errors import ConfigError
from headrace.wire.telemetry import metrics
from headrace.wire.telemetry.logs import get_logger

LOOK_S = 2.0
"""Between two looks at the files."""

T = TypeVar("T")
log = get_logger("headrace.wire.access")


class RereadValue(Generic[T]):
    """Holds the value; any thread may ask for it."""

    def __init__(self, what: str, files: Callable[[], Sequence[Path]], read: Callable[[], T]) -> None:
        """`what`: its name in log and metrics; `files`: those that it is read from; `read` raises ConfigError."""
        self._what, self._files, self._read = what, files, read
        self._lock = threading.Lock()
        self._value: T | None = None
        self._seen: tuple[object, ...] = ()
        self._look_again = 0.0
        self._last_error = ""

    def get(self) -> T:
        """The value as the files have it now, at most `LOOK_S` seconds old; the first time raises ConfigError.

        Files that can no longer be read, or are half replaced, leave the value as it was: they are tried again.
        """
        with self._lock:
            if self._value is None:
                self._seen = self._stamps()
                self._value = self._read()
            elif time.monotonic() >= self._look_again:
                self._value = self._reread(self._value)
            else:
                return self._value
            self._look_again = time.monotonic() + LOOK_S
            return self._value

    def _reread(self, value: T) -> T:
        seen = self._stamps()
        if seen == self._seen:
            return value
        try:
            value = self._read()
        except ConfigError as error:
            metrics.ACCESS_REREAD.labels(self._what, "refused").inc()
            if str(error) != self._last_error:
                log.warning("access_kept", what=self._what, error=str(error))
            self._last_error = str(error)
            return value
        self._seen, self._last_error = seen, ""
        metrics.ACCESS_REREAD.labels(self._what, "taken").inc()
        log.info("access_reread", what=self._what)
        return value

    def _stamps(self) -> tuple[object, ...]:
        return tuple(_stamp(path) for path in self._files())


def _stamp(path: Path) -> tuple[int, ...]:
    """Changes with the file; a mounted secret is replaced by another link to another file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
