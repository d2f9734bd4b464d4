"""The only code that replaces a file or a folder: written aside, synced if it must be durable, then renamed.

Readers see the old content or the new one, never a part. Every caller says whether the new one must be `durable`, that
is survive a crash of the machine once the call has returned, or whether something else can write it again.

Logs are another thing: they grow by whole lines or frames, and their writers sync their own descriptor (the journal,
`annotations/votes.jsonl`, `evals.jsonl`).
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from headrace.wire.host.disk_fault import writing
from headrace.wire.process import failpoints

ASIDE = ".aside-"
"""Prefix of a name that is not yet in use, or no longer. A killed writer leaves such a name behind; readers skip it."""
_OLD = f"{ASIDE}old-"


def write_text(path: Path, text: str, *, durable: bool, mode: int = 0o666) -> None:
    """Replaces the file with `text` in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode(), durable=durable, mode=mode)


def write_bytes(path: Path, data: bytes, *, durable: bool, mode: int = 0o666) -> None:
    """Replaces the file with `data`. Raises OSError or DiskError, and leaves the old file as it was.

    `mode`: of the new file, less the umask; it never has another mode meanwhile.
    """
    with (
        replaced_file(path, durable=durable, needed=len(data)) as aside,
        open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file,
    ):
        file.write(data)


def write_whole(descriptor: int, data: bytes) -> None:
    """Writes all of `data`: a disk that fills takes the beginning and reports no error. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def replaced_file(path: Path, *, durable: bool, needed: int | None = None) -> Iterator[Path]:
    """Yields the path to write to, for libraries that open files themselves; it becomes `path` at the end.

    If the block raises, what it wrote is removed and `path` is as it was; a disk that refuses raises DiskError, with
    the `needed` bytes if they are known. Several processes may replace one path: the last one wins.
    """
    # The suffix is last: no `*.jsonl` or `*.parquet` of a reader matches.
    aside = path.with_name(f"{ASIDE}{path.name}.{uuid4().hex[:8]}")
    try:
        with writing(path, needed):
            yield aside
            move(aside, path, durable=durable)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def replaced_folder(folder: Path, *, durable: bool) -> Iterator[Path]:
    """Yields an empty folder to fill; it becomes `folder` at the end, in place of an older one.

    If the block raises, what it wrote is removed and `folder` is as it was; a disk that refuses raises DiskError. One
    writer at a time: what an earlier, killed one left is removed first.
    """
    aside = aside_of(folder)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with writing(folder):
            aside.mkdir(parents=True)
            yield aside
            publish_folder(aside, folder, durable=durable)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def aside_of(folder: Path) -> Path:
    """Where `replaced_folder` writes: beside the folder, on the same file system."""
    return folder.with_name(f"{ASIDE}{folder.name}")


def publish_folder(aside: Path, folder: Path, *, durable: bool) -> None:
    """Renames `aside` to `folder` and removes an older one; for a moment there is none, as no call swaps two."""
    old = folder.with_name(f"{_OLD}{folder.name}")
    shutil.rmtree(old, ignore_errors=True)
    if durable:
        sync_tree(aside)
    failpoints.reach("folder.before_rename")
    if folder.exists():
        folder.rename(old)
        failpoints.reach("folder.moved_aside")
    aside.rename(folder)
    failpoints.reach("folder.renamed")
    if durable:
        sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_left_overs(folder: Path) -> None:
    """Removes what killed writers have left in a folder; only its one writer may do it. Raises OSError."""
    for path in folder.glob(f"{ASIDE}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def move(source: Path, target: Path, *, durable: bool) -> None:
    """Renames a whole file, in place of an older one, on the same file system."""
    if durable:
        sync(source)
    failpoints.reach("file.before_rename")
    source.replace(target)
    failpoints.reach("file.renamed")
    if durable:
        sync(target.parent)


def sync_tree(folder: Path) -> None:
    """Makes all files below durable, and their names."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def sync(path: Path) -> None:
    """Makes a file's content, or the names in a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        failpoints.reach("sync.before")
        os.fsync(descriptor)
        failpoints.reach("sync.done")
    finally:
        os.close(descriptor)
