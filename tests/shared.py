"""What is costly to make, made once for all workers of a session: a finished run, a trained model."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MADE = "made"


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The session's folder `name`, filled by `make`; tests only read it.

    The first worker that asks for it calls `make` with a path that does not exist yet, the others wait meanwhile. What
    a worker left half made, because `make` raised or the worker died, the next one makes anew.
    """
    base = factory.getbasetemp()
    # A worker of pytest-xdist has a folder of its own in that of the session.
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = common / f"shared-{name}"
    with _locked(folder.with_suffix(".lock")):
        if not (folder / _MADE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            (folder / _MADE).touch()
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Until the end of the block or of this process, whichever is first."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
