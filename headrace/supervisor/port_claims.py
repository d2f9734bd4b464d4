"""Claims on ports that processes of this user have picked but do not listen on yet: no other run picks them.

One file for each user, one byte for each port, locked by the process that picked it for as long as it lives.
"""

import fcntl
import os
import tempfile
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
    path = Path(tempfile.gettempdir()) / f"headrace-ports-{os.getuid()}.lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)  # No port: whether the file system has locks.
    except OSError:
        return None
    return file
