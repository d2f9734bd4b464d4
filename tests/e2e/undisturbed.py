"""One run that nothing disturbs, made once for all workers of a session; what compares with it only reads it."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import TinyRun

STEPS = 8
_VERDICT = "verdict.json"


class Undisturbed(TinyRun):
    """A finished run, and what `headrace check` said of it."""

    def __init__(self, folder: Path) -> None:
        """Makes it in `folder`, unless another worker has."""
        self.folder, self.run_dir, self.process = folder, folder / "run", None
        if not (folder / _VERDICT).exists():
            shutil.rmtree(folder, ignore_errors=True)  # Of a worker that died over it.
            super().__init__(folder, steps=STEPS)
            self._make()
        self.verdict: dict[str, Any] = json.loads((folder / _VERDICT).read_text())

    def _make(self) -> None:
        self.start()
        try:
            line = self.finish()
        finally:
            self.close()
        assert line["steps"] == STEPS
        assert line["rollouts"] == STEPS * 16
        (self.folder / _VERDICT).write_text(json.dumps(self.check()))


def undisturbed(factory: pytest.TempPathFactory) -> Undisturbed:
    """The session's run; the first worker that asks for it makes it, the others wait meanwhile."""
    base = factory.getbasetemp()
    # A worker of pytest-xdist has a folder of its own in that of the session.
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with _locked(common / "undisturbed.lock"):
        return Undisturbed(common / "undisturbed")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Until the end of the block or of this process, whichever is first."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
