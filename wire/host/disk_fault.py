"""Recognizes a full, read-only or failing disk behind any exception, and names it in one sentence.

Libraries hide the number of the error: SQLite has codes of its own, safetensors (Rust) only a text.
"""

import contextlib
import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from headrace.wire.errors import DiskError

_SAID = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the disk reports an input/output error",
}
_WAY_OUT = {
    errno.ENOSPC: "make room there, then continue with --resume",
    errno.EDQUOT: "make room there or raise the quota, then continue with --resume",
    errno.EROFS: "mount it writable (a disk that fails is often remounted so), then continue with --resume",
    errno.EIO: "look at the kernel's log and replace the disk; continue with --resume from what is whole",
}
_SQLITE = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_READONLY: errno.EROFS, sqlite3.SQLITE_IOERR: errno.EIO}
_RUST = re.compile(r"\(os error (\d+)\)")
_LONGEST_CHAIN = 20
_PROBE_BYTES = 64 * 1024
_PROBE = ".probe"
_noted: list[DiskError] = []


@contextlib.contextmanager
def writing(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turns a disk's refusal within the block into DiskError that names `path`; other errors pass.

    `needed`: bytes that the block writes, if that is known.
    """
    try:
        yield
    except Exception as error:
        fault = disk_fault(error, path, needed)
        if fault is None or isinstance(error, DiskError):
            raise
        raise fault from error


def disk_fault(error: BaseException, place: Path, needed: int | None = None) -> DiskError | None:
    """The fault of a disk that `error` or one of its causes reports; None for any other error.

    `place` is named where the error itself names no file; `needed`: bytes of the write that failed.
    """
    for one in _chain(error):
        if isinstance(one, DiskError):
            return one
        number = _number(one)
        if number in _SAID:
            named = getattr(one, "filename", None)
            return DiskError(_sentence(number, Path(os.fsdecode(named)) if named else place, needed))
    return None


def note(fault: DiskError) -> None:
    """Keeps a fault that a handler met, whose caller cannot end this process; `raise_noted` ends it."""
    _noted.append(fault)


def raise_noted() -> None:
    """Raises the first fault that was noted in this process: for the loop that every service runs in."""
    if _noted:
        raise _noted[0]


def probe(folder: Path) -> DiskError | None:
    """Writes and removes a small file: the fault of the disk below `folder`, None if it takes writes."""
    path = folder / _PROBE
    try:
        with path.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return disk_fault(error, path, _PROBE_BYTES)
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return None


def free_bytes(place: Path) -> int | None:
    """Bytes that this process may still write on the file system of `place`, a file or folder that need not exist.

    None where nothing can be looked at.
    """
    found = _look(place)
    return None if found is None else found.f_bavail * found.f_frsize


def in_bytes(count: float) -> str:
    """Formats bytes for people, such as `512 bytes`, `3.1 MiB`, `12.0 GiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, those of a group, and what each was raised from."""
    waiting, seen = [error], 0
    while waiting and seen < _LONGEST_CHAIN:
        one = waiting.pop(0)
        seen += 1
        yield one
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is not None:
            waiting.append(cause)


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, sqlite3.Error):
        return _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    found = _RUST.search(str(error)) if type(error).__name__ == "SafetensorError" else None
    return int(found[1]) if found else None


def _sentence(number: int, path: Path, needed: int | None) -> str:
    facts = []
    found = _look(path)
    if found is not None:
        facts.append(f"{in_bytes(found.f_bavail * found.f_frsize)} free on {_mount(path)}")
        if found.f_files and not found.f_favail:
            facts.append("no inodes free")
    if needed is not None:
        facts.append(f"{in_bytes(needed)} needed")
    said = f" ({', '.join(facts)})" if facts else ""
    return f"{path}: {_SAID[number]}{said}; {_WAY_OUT[number]}"


def _mount(path: Path) -> Path:
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.is_mount() or one == one.parent)


def _look(place: Path) -> os.statvfs_result | None:
    for path in (place, *place.parents):
        with contextlib.suppress(OSError):
            return os.statvfs(path)
    return None
