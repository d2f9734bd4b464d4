"""What is costly to make, made once for all workers of a session: a finished run, a trained model."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The session's folder `name`, filled by `make`; tests only read it.

    The first worker that asks for it calls `make` with a path that does not exist yet, the others wait meanwhile. What
    a worker left half made, because `make` raised or the worker died, the next one makes anew. Raises AssertionError
    if a test has changed a file of it since.
    """
    base = factory.getbasetemp()
    # A worker of pytest-xdist has a folder of its own in that of the session.
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = common / f"shared-{name}"
    with _locked(folder.with_suffix(".lock")):
        listing = folder.with_suffix(".made")
        if not listing.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            listing.write_text(json.dumps(_files(folder)))
        before, now = json.loads(listing.read_text()), _files(folder)
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    assert not changed, f"{folder} is shared by tests, which may only read it; changed since it was made: {changed}"
    return folder


def _files(folder: Path) -> dict[str, list[int]]:
    """Path of each file -> what changes with its content: size, time of the last change in ns, inode."""
    stats = {str(path.relative_to(folder)): path.lstat() for path in folder.rglob("*") if not path.is_dir()}
    return {name: [stat.st_size, stat.st_mtime_ns, stat.st_ino] for name, stat in stats.items()}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Until the end of the block or of this process, whichever is first."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
