"""Peers that a process cannot reach: in its log, and for `status` in a file of the run directory while it lasts.

A process that has not said what it is called (`show_as`), such as a command, says nothing.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from headrace.wire.api.status import UnreachablePeer
from headrace.wire.errors import DiskError
from headrace.wire.host.regular_file import read_regular_text
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry.logs import get_logger

_GRACE_S = 3.0
"""A peer that is restarted is back before."""
_AGAIN_S = 30.0
_FRESH_S = 60.0
"""A process writes its file again while it waits: an older one was left behind by a process that died."""
_LONGEST = 500
log = get_logger("wire.outage")


class _Board:
    """The outages of this process, and the file that shows them; none without a path."""

    def __init__(self) -> None:
        self.who = ""
        self.path: Path | None = None
        self.shown: dict[Outage, UnreachablePeer] = {}

    def write(self) -> None:
        if self.path is None:
            return
        # A disk that refuses ends a process where it writes what must last.
        with suppress(OSError, DiskError):
            if self.shown:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                text = "".join(one.model_dump_json() + "\n" for one in self.shown.values())
                atomic.write_text(self.path, text, durable=False)
            else:
                self.path.unlink(missing_ok=True)


class Outage:
    """One connection of this process to a peer. Logs within seconds that it fails, again if it goes on, and its end."""

    def __init__(self, peer: str, address: str) -> None:
        """`peer`: its name, for people; `address`: where it is sought, without credentials."""
        self._peer, self._address = peer, address
        self._since = self._logged = self._written = 0.0
        self._error = ""

    def failed(self, error: object, *, began: float | None = None) -> None:
        """Notes a failed try, which began at that monotonic time (now, if it failed at once); call it at each."""
        now, said = time.monotonic(), str(error)[:_LONGEST]
        self._since = self._since or (began or now)
        changed = said != self._error
        self._error = said
        if now - self._since < _GRACE_S or not _BOARD.who:
            return
        if not self._logged or now - self._logged >= _AGAIN_S:
            self._logged = now
            seconds = round(now - self._since, 1)
            log.warning("peer_unreachable", peer=self._peer, address=self._address, error=said, seconds=seconds)
        if changed or now - self._written >= _AGAIN_S / 2:
            self._written = now
            since = round(time.time() - now + self._since, 1)
            _BOARD.shown[self] = UnreachablePeer(
                who=_BOARD.who, peer=self._peer, address=self._address, error=said, since=since
            )
            _BOARD.write()

    def over(self) -> None:
        """Notes an answer; cheap while all is well."""
        if self._since:
            if self._logged:
                log.info("peer_reached", peer=self._peer, seconds=round(time.monotonic() - self._since, 1))
            self._since = self._logged = self._written = 0.0
            self._error = ""
            if _BOARD.shown.pop(self, None) is not None:
                _BOARD.write()


_BOARD = _Board()


def show_as(who: str, run_dir: Path, folder: Path) -> None:
    """Names this process, and removes what its previous life left. `folder`: for its file, which it may write to."""
    _BOARD.who, _BOARD.path = who, folder / RunPaths(run_dir).unreachable(who).name
    _BOARD.shown.clear()
    _BOARD.write()


def forget() -> None:
    """Removes the file of this process, which ends."""
    _BOARD.shown.clear()
    _BOARD.write()
    _BOARD.who, _BOARD.path = "", None


def unreachable(run_dir: Path) -> Iterator[UnreachablePeer]:
    """What the processes of a run cannot reach now, by process."""
    for path in RunPaths(run_dir).unreachable_files():
        with suppress(OSError, ValueError, ValidationError):
            if time.time() - path.stat().st_mtime < _FRESH_S:
                for line in read_regular_text(path).splitlines():
                    yield UnreachablePeer.model_validate_json(line)
