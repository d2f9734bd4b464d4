"""`make chaos`: each service is killed at each failpoint that runs reach, 12 kills a run, in the order of a seed."""

import itertools
import multiprocessing
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.failpoints.armed_run import VARIANTS
from tests.chaos.failpoints.campaign import AT_ONCE, OF_LOST_STREAMS, Outcome, rounds, struck, undisturbed
from tests.chaos.failpoints.results import RESULTS, Section, seed_of, write

TRIES = 4
CUT_S = 3 * 3600
"""Ends a hang."""
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(CUT_S),
    pytest.mark.skipif(not RESULTS, reason="half an hour: make chaos"),
]


def test_every_service_dies_at_every_failpoint_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    seed, began = seed_of(), time.monotonic()
    sys.stdout.write(f"HEADRACE_CHAOS_SEED={seed}\n")
    draw = random.Random(seed)
    done: set[str] = set()
    tries: Counter[str] = Counter()
    not_again: set[str] = set()
    runs: list[Outcome] = []
    with ProcessPoolExecutor(AT_ONCE, mp_context=multiprocessing.get_context("spawn")) as pool:
        plain = {variant: pool.submit(undisturbed, tmp_path / variant, variant) for variant in VARIANTS}
        for variant, undisturbed_run in plain.items():
            before = undisturbed_run.result()
            todo = (before.reached | OF_LOST_STREAMS) - done
            for number, lists in enumerate(rounds(todo, draw)):
                folders = [tmp_path / f"{variant}-{number}-{index}" for index in range(len(lists))]
                draws = [random.Random(draw.random()) for _ in lists]
                outcomes = list(pool.map(struck, folders, itertools.repeat(variant), lists, draws))
                for outcome in outcomes:
                    assert outcome.weights_sha256 == before.weights_sha256, f"{variant}: other weights after {outcome}"
                    assert (outcome.lost, outcome.doubled) == (0, 0), outcome
                    done |= {strike.name for strike in outcome.strikes}
                    # What only a kill leads to is reached in these runs first; some of it is not reached again.
                    todo |= outcome.reached
                runs += outcomes
                tries.update({name for names in lists for name in names} - done)
                not_again = {name for name, count in tries.items() if count == TRIES and name not in done}
                todo -= done | not_again
                strikes = sum(len(outcome.strikes) for outcome in outcomes)
                sys.stdout.write(f"{variant} {number}: {strikes} struck, {len(todo)} left\n")
                sys.stdout.flush()
                write("failpoints", Section(seed, time.monotonic() - began, runs, sorted(not_again)))
