"""Allows one live supervisor per run directory, by a kernel lock, which ends with its process."""

import fcntl
import json
import os
from pathlib import Path

from pydantic import JsonValue

from headrace.wire.errors import ConfigError
from headrace.wire.host.regular_file import read_object
from headrace.wire.rundir.layout import RunPaths

_TRIES = 10


class RunLock:
    """The lock of a run directory, held from the first write to the end of the run."""

    def __init__(self, run_dir: Path, *, name: str = "", what: str = "") -> None:
        """`name`: name of the lock file, for a lock on a part of the run; `what`: that part, for the error message."""
        folder = RunPaths(run_dir).processes
        self._path = folder / name if name else RunPaths(run_dir).supervisor
        for _ in range(_TRIES):
            self._file = self._opened(folder)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._file)
                owner = read_object(self._path).get("pid", "unknown")
                raise ConfigError(f"{what or run_dir} is in use by another headrace (pid {owner})") from None
            if self._is_there():
                break
            # A start that failed has removed the file in between: a lock on it would exclude no other start.
            os.close(self._file)
        else:
            raise ConfigError(f"{what or run_dir} is being removed by another headrace: start again")
        self.record()

    def _opened(self, folder: Path) -> int:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another --run-dir") from error

    def _is_there(self) -> bool:
        """Whether the opened file still is the one at its path."""
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False

    def record(self, **more: str) -> None:
        """Writes the holder's pid, and `more` about it, to the file for other processes.

        One write over all that was there: another process never finds the file empty.
        """
        text = json.dumps({"pid": os.getpid(), **more}).encode() + b"\n"
        os.pwrite(self._file, text.ljust(os.fstat(self._file).st_size), 0)

    def release(self) -> None:
        """Releases the lock; the file stays, empty. Does nothing if it is released."""
        if self._file < 0:
            return
        os.ftruncate(self._file, 0)
        os.close(self._file)
        self._file = -1


class RunWatch:
    """Detects from another machine that the run's command has ended: it empties its file, unless it is killed.

    The kernel's lock would be exact, but not every shared file system shows it to other machines.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = RunPaths(run_dir).supervisor
        self._was_there = False
        self.ended()

    def ended(self) -> bool:
        """Whether the file was held at an earlier call, and is empty or gone; no, while it cannot be read."""
        try:
            held = bool(self._path.read_bytes())
        except FileNotFoundError:
            held = False
        except OSError:
            return False
        self._was_there = self._was_there or held
        return self._was_there and not held


def supervisor_pid(run_dir: Path) -> int | None:
    """Pid of the live supervisor of a run directory, if there is one."""
    owner = supervisor(run_dir).get("pid")
    return owner if isinstance(owner, int) else None


def in_preparation(run_dir: Path) -> str:
    """What a start does in a folder that has no config yet, in words; empty where none is at work, or it has one."""
    if RunPaths(run_dir).run_toml.is_file() or not (found := supervisor(run_dir)):
        return ""
    # The folder may be another user's: nothing for the terminal itself.
    doing = str(found.get("doing", "its files are made"))
    return f"being prepared: {''.join(one if one.isprintable() else '?' for one in doing)}"


def supervisor(run_dir: Path) -> dict[str, JsonValue]:
    """Fields that the live supervisor of a run directory wrote to its lock file; empty if there is none."""
    path = RunPaths(run_dir).supervisor
    try:
        # The folder may be another's, and this a pipe.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_object(path)
    finally:
        os.close(file)
    return {}


def the_live_run(folder: Path = Path("runs")) -> Path:
    """The one live run below a folder. Raises ConfigError unless there is exactly one."""
    live = [path for path in sorted(folder.glob("*")) if supervisor(path)]
    if len(live) == 1:
        return live[0]
    found = ", ".join(map(str, live)) or f"none in {folder}/"
    raise ConfigError(f"say which run: give its RUN_DIR (alive: {found})")
