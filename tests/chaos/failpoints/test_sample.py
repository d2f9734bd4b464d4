"""Services die at a drawn sample of failpoints in one run, for `make test`; `make chaos` strikes all of them."""

import os
import random
import sys
from pathlib import Path

import pytest

from tests.chaos.failpoints.armed_run import SCORED
from tests.chaos.failpoints.campaign import struck, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
KILLS = 6
STEPS = 36
BY_CHANCE = (
    *("stream.claimed", "stream.before_release", "stream.released", "stream.before_renew", "stream.renewed"),
    *("stream.before_fail", "stream.failed", "rpc.served.CloseGroup", "rpc.served.GetFates", "rpc.served.AbortWeights"),
    *(f"rpc.{kind}.{name}Request" for kind in ("before_call", "answered") for name in ("CloseGroup", "GetFates")),
)
"""Points that an undisturbed run reaches or not, by its timing: a sample, all of which must strike, has none."""


def test_kills_at_failpoints_lose_and_double_nothing_and_change_no_bit(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADRACE_CHAOS_SEED", "18"))
    before = undisturbed(tmp_path / "undisturbed", SCORED, steps=STEPS)
    points = sorted(name for name in before.reached if name.partition(".")[2] not in BY_CHANCE)
    names = random.Random(seed).sample(points, KILLS)
    sys.stdout.write(f"HEADRACE_CHAOS_SEED={seed}: {', '.join(names)}\n")
    after = struck(tmp_path / "struck", SCORED, names, random.Random(seed), steps=STEPS)
    assert {one.name for one in after.strikes} >= set(names), after
    assert (after.lost, after.doubled) == (0, 0)
    assert after.weights_sha256 == before.weights_sha256
