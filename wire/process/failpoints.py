"""Named points around every effect that outlives a process, at which a test kills it as a machine's crash would.

No handler runs and no buffer is flushed. Points stand before and after each write, fsync, rename, send, ack and
commit; `tests/chaos/failpoints` derives from the source which service can reach which of them, and kills it there.
Without `HEADRACE_FAILPOINTS`, which names a folder, `reach` does nothing:

    FOLDER/armed/SERVICE.POINT    a process of that service dies at the point, once it has passed it this many times
    FOLDER/reached/SERVICE.POINT  some process of the service has reached the point
    FOLDER/struck/SERVICE.POINT   the process id that was killed; the file's time is the time of the kill
"""

import contextlib
import os
import signal
from pathlib import Path

VARIABLE = "HEADRACE_FAILPOINTS"


class Strikes:
    """The folder through which a test and the processes of a run agree on kills."""

    def __init__(self, folder: Path, service: str) -> None:
        self._folder, self._service = folder, service
        self._passed: dict[str, int] = {}
        """Point -> how often this process has passed it since it was armed; -1 before."""

    def reach(self, point: str) -> None:
        """Notes that the point was reached, and kills this process if it is armed."""
        name = f"{self._service}.{point}"
        if name not in self._passed:
            self._passed[name] = -1
            self._write("reached", name, "")
        armed = self._folder / "armed" / name
        try:
            passes = int(armed.read_text() or "0")
            self._passed[name] += 1
            if self._passed[name] < passes:
                return
            # Of several processes that reach an armed point at once, the one that removes the file dies.
            armed.unlink()
        except FileNotFoundError:
            self._passed[name] = -1
            return
        self._write("struck", name, str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, kind: str, name: str, text: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._folder / kind / name).write_text(text)


class _Process:
    strikes: Strikes | None = None


def install(service: str, folder: str) -> None:
    """Makes the points of this process those of `service`; `folder`: the variable's value, "" for none."""
    _Process.strikes = Strikes(Path(folder), service) if folder else None


def reach(point: str) -> None:
    """Marks a point of the program; see above."""
    if _Process.strikes is not None:
        _Process.strikes.reach(point)
