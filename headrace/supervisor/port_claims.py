"""Claims on ports that processes of this user have picked but do not listen on yet: no other run picks them.

One file for each user, one byte for each port, locked by the process that picked it for as long as it lives. Another
user can make a file of that name first, and lock it: then the file is in a folder that only this user may enter.
"""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_claimed: set[int] = set()
"""Ports claimed by this process, which the kernel's locks do not keep from claiming them again."""


def claim(port: int) -> bool:
    """Claims a port for the life of this process; False if this or another process has claimed it before.

    Where the file cannot be locked (a system without a folder for temporary files) only this process's claims count.
    """
    if port in _claimed:
        return False
    file = _file()
    if file is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
    _claimed.add(port)
    return True


@cache
def _file() -> int | None:
    """Opens the file of claims, None if it cannot be locked. Never closed: closing any descriptor drops all locks."""
    name = f"headrace-ports-{os.getuid()}.lock"
    return next((file for folder in _folders() if (file := _opened(folder / name)) is not None), None)


def _folders() -> Iterator[Path]:
    """Where the file may be, the same for each process of this user; the next one only if it cannot be used there."""
    yield Path(tempfile.gettempdir())
    own = [Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"]
    with contextlib.suppress(RuntimeError):  # Not every user has a home.
        own.append(Path.home() / ".cache" / "headrace")
    yield from (folder for folder in own if _is_private(folder))


def _is_private(folder: Path) -> bool:
    """Whether only this user may write there; makes the folder if it is not there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _opened(path: Path) -> int | None:
    """The file, None unless it is this user's own and can be locked. A refused one has no lock that a close drops."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        # Another user could lock a file of another's, or one that more than its owner may open.
        if found.st_uid == os.getuid() and stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)  # No port: whether the file system has locks.
            return file
    except OSError:
        pass
    os.close(file)
    return None
