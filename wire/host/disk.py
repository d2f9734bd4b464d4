"""How much room the file system below a folder has, as gauges."""

import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from headrace.wire.telemetry.logs import get_logger

_EVERY_S = 5.0
log = get_logger("headrace.wire.host.disk")


class DiskWatch:
    """Looks every few seconds, on a daemon thread: on a network mount that is frozen a look never returns.

    The gauges keep what the last look found, and are NaN before the first and where there is nothing to look at.
    """

    def __init__(
        self,
        folder: Path,
        free: Callable[[float], object],
        size: Callable[[float], object],
        *,
        every_s: float = _EVERY_S,
    ) -> None:
        """They set the gauges of what this process may still write (not what is kept for root), and of all; bytes."""
        self._folder, self._free, self._size, self._every_s = folder, free, size, every_s
        self._stopped = threading.Event()
        self._said = ""

    def start(self) -> None:
        """Begins to look."""
        self._free(math.nan)
        self._size(math.nan)
        threading.Thread(target=self._watch, name="disk-watch", daemon=True).start()

    def stop(self) -> None:
        """Looks no more; waits for nothing."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._look()
            self._stopped.wait(self._every_s)

    def _look(self) -> None:
        try:
            found = shutil.disk_usage(self._folder)
        except OSError as error:
            if str(error) != self._said:
                log.warning("disk_not_seen", folder=str(self._folder), error=str(error))
            self._said = str(error)
            free, size = math.nan, math.nan
        else:
            self._said, free, size = "", float(found.free), float(found.total)
        self._free(free)
        self._size(size)
