"""One live supervisor a run directory: a kernel lock, which a dead one cannot keep."""

import fcntl
import json
import os
from pathlib import Path

from wire.errors import ConfigError


class RunLock:
    """Held from the first write to the end of the run."""

    def __init__(self, run_dir: Path) -> None:
        folder = run_dir / "run"
        self._path = folder / "supervisor.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another --run-dir") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise ConfigError(f"{run_dir} is in use by another headrace (pid {_owner(self._path)})") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps({"pid": os.getpid()}).encode() + b"\n", 0)

    def release(self) -> None:
        """Ends the hold; the file stays, empty."""
        os.ftruncate(self._file, 0)
        os.close(self._file)


def supervisor_pid(run_dir: Path) -> int | None:
    """Pid of the live supervisor of a run directory, if there is one."""
    path = run_dir / "run" / "supervisor.json"
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner(path)
        return owner if isinstance(owner, int) else None
    finally:
        os.close(file)
    return None


def _owner(path: Path) -> int | str:
    try:
        return int(json.loads(path.read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return "unknown"
