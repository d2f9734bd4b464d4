"""A drawn sample of failpoints, for `make test`; `make chaos` strikes all of them."""

import json
import os
import random
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.failpoints.armed_run import SCORED
from tests.chaos.failpoints.campaign import struck, undisturbed
from tests.chaos.failpoints.expected import BY_CHANCE
from tests.shared import made_once

KILLS = 2
STEPS = 24
_FILE = "reference.json"


@dataclass(frozen=True, slots=True)
class Reference:
    """An undisturbed run."""

    reached: list[str]
    weights_sha256: str


def strike_sample(factory: pytest.TempPathFactory, folder: Path, services: Collection[str]) -> None:
    """Kills these services at KILLS failpoints in one run, which must end in the bits of an undisturbed one."""
    seed = int(os.environ.get("HEADRACE_CHAOS_SEED", "18"))
    before = _undisturbed(factory)
    points = sorted(name for name in before.reached if _always(name) and name.partition(".")[0] in services)
    names = random.Random(seed).sample(points, KILLS)
    sys.stdout.write(f"HEADRACE_CHAOS_SEED={seed}: {', '.join(names)}\n")
    after = struck(folder / "struck", SCORED, names, random.Random(seed), steps=STEPS)
    assert {one.name for one in after.strikes} >= set(names), after
    assert (after.lost, after.doubled) == (0, 0)
    assert after.weights_sha256 == before.weights_sha256


def _always(name: str) -> bool:
    """Whether each run reaches it."""
    return name.partition(".")[2] not in BY_CHANCE


def _undisturbed(factory: pytest.TempPathFactory) -> Reference:
    """What a run of STEPS steps reaches and ends in, one for all workers of a session."""
    return Reference(**json.loads((made_once(factory, "undisturbed-sample", _make) / _FILE).read_text()))


def _make(folder: Path) -> None:
    outcome = undisturbed(folder, SCORED, steps=STEPS)
    (folder / _FILE).write_text(
        json.dumps({"reached": sorted(outcome.reached), "weights_sha256": outcome.weights_sha256})
    )
