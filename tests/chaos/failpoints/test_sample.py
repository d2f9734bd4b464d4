"""A drawn sample of failpoints: services die at them in one run, which ends in the bits of an undisturbed one.

`make chaos` strikes all of them.
"""

import os
import random
import sys
from pathlib import Path

import pytest

from tests.chaos.failpoints.armed_run import SCORED
from tests.chaos.failpoints.campaign import struck, undisturbed
from tests.chaos.failpoints.expected import BY_CHANCE, RARE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
KILLS = 6
STEPS = 60


def test_services_that_die_at_failpoints_lose_and_double_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADRACE_CHAOS_SEED", "18"))
    before = undisturbed(tmp_path / "undisturbed", SCORED, steps=STEPS)
    always = sorted(name for name in before.reached if name.partition(".")[2] not in BY_CHANCE | RARE.keys())
    names = random.Random(seed).sample(always, KILLS)
    sys.stdout.write(f"HEADRACE_CHAOS_SEED={seed}: {', '.join(names)}\n")
    after = struck(tmp_path / "struck", SCORED, names, random.Random(seed), steps=STEPS)
    assert {one.name for one in after.strikes} >= set(names), after
    assert (after.lost, after.doubled) == (0, 0)
    assert after.weights_sha256 == before.weights_sha256
