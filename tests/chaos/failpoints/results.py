"""What `make chaos` has found, in the JSON file that `HEADRACE_CHAOS` names: one section for each of its tests."""

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.failpoints.campaign import Outcome

RESULTS = os.environ.get("HEADRACE_CHAOS", "")
"""The file; empty for a test that is run by itself."""


@dataclass(frozen=True, slots=True)
class Section:
    """What one test has found so far."""

    seed: int
    seconds: float
    """Since it began."""
    runs: Sequence[Outcome]
    not_again: Sequence[str] = ()
    """SERVICE.POINT that were reached once and not struck."""


def seed_of() -> int:
    """The seed from which everything is drawn."""
    return int(os.environ.get("HEADRACE_CHAOS_SEED", "1"))


def write(name: str, section: Section, path: str = RESULTS) -> None:
    """Replaces a section of the file; does nothing without one."""
    if not path:
        return
    file = Path(path)
    found = json.loads(file.read_text()) if file.exists() else {}
    runs = [dataclasses.asdict(run) | {"reached": sorted(run.reached)} for run in section.runs]
    found[name] = {
        "seed": section.seed,
        "seconds": section.seconds,
        "runs": runs,
        "not_again": list(section.not_again),
    }
    file.write_text(json.dumps(found, indent=1))
