"""One run that nothing disturbs, made once for all workers of a session; what compares with it only reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import TinyRun
from tests.shared import made_once

STEPS = 8
_VERDICT = "verdict.json"


class Undisturbed(TinyRun):
    """A finished run, and what `headrace check` said of it."""

    def __init__(self, folder: Path) -> None:
        """Reads what `_make` has left in `folder`."""
        self.folder, self.run_dir, self.process = folder, folder / "run", None
        self.verdict: dict[str, Any] = json.loads((folder / _VERDICT).read_text())


def _make(folder: Path) -> None:
    run = TinyRun(folder, steps=STEPS)
    run.start(cold=True)
    try:
        line = run.finish()
    finally:
        run.close()
    assert line["steps"] == STEPS
    assert line["rollouts"] == STEPS * 16
    (folder / _VERDICT).write_text(json.dumps(run.check()))


def undisturbed(factory: pytest.TempPathFactory) -> Undisturbed:
    """The session's run."""
    return Undisturbed(made_once(factory, "undisturbed", _make))
