"""One live supervisor a run directory: a kernel lock, which a dead one cannot keep."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from wire.errors import ConfigError

_SUPERVISOR = "supervisor.json"


class RunLock:
    """Held from the first write to the end of the run."""

    def __init__(self, run_dir: Path, *, name: str = _SUPERVISOR, what: str = "") -> None:
        """`name`: of the file, where it is not the whole run that is held; `what` is held then, in words."""
        folder = run_dir / "run"
        self._path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another --run-dir") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            owner = _told(self._path).get("pid", "unknown")
            raise ConfigError(f"{what or run_dir} is in use by another headrace (pid {owner})") from None
        self.tell()

    def tell(self, **more: str) -> None:
        """Writes for others who holds it, and more about the holder."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps({"pid": os.getpid(), **more}).encode() + b"\n", 0)

    def release(self) -> None:
        """Ends the hold; the file stays, empty."""
        os.ftruncate(self._file, 0)
        os.close(self._file)


class RunWatch:
    """Whether the run's command has ended since somebody began to look: it empties its file, unless it is killed.

    The kernel's lock would tell more, but other machines do not see it on every shared file system.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "run" / _SUPERVISOR
        self._was_there, self._absent = False, 0
        self.ended()

    def ended(self) -> bool:
        """At two looks in a row: the file is empty for a moment when its holder writes it anew."""
        try:
            held = bool(self._path.read_bytes())
        except OSError:
            held = False
        self._was_there = self._was_there or held
        self._absent = 0 if held else self._absent + 1
        return self._was_there and self._absent > 1


def supervisor_pid(run_dir: Path) -> int | None:
    """Pid of the live supervisor of a run directory, if there is one."""
    owner = supervisor(run_dir).get("pid")
    return owner if isinstance(owner, int) else None


def supervisor(run_dir: Path) -> dict[str, Any]:
    """What the live supervisor of a run directory says of itself; empty if there is none."""
    path = run_dir / "run" / _SUPERVISOR
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return {}
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _told(path)
    finally:
        os.close(file)
    return {}


def _told(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
