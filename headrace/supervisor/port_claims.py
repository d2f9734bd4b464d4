"""Ports that processes of this user have picked: nobody listens on them yet, and no other run is to pick them.

One file for each user, one byte for each port, locked by the process that picked it for as long as it lives.
"""

import fcntl
import os
import tempfile
from functools import cache
from pathlib import Path

_claimed: set[int] = set()
"""By this process, whose own locks the kernel does not hold against it."""


def claim(port: int) -> bool:
    """Whether the port is this process's from now on; False if it, or another one, has picked it before.

    Where the file cannot be locked (a system without a folder for temporary files) every port is free to be picked.
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
    """Never closed: the first descriptor of the file that a process closes takes all of its locks with it."""
    path = Path(tempfile.gettempdir()) / f"headrace-ports-{os.getuid()}.lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)  # No port: whether the file system has locks.
    except OSError:
        return None
    return file
