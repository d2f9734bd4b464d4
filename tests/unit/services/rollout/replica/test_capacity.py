"""How much a replica takes, and how it counts its idle time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.rollout.replica.capacity import group_limit
from headrace.services.rollout.replica.waiting_dial import MEMORY_S, WaitingDial


@pytest.mark.parametrize(
    ("rows", "size", "groups", "staleness", "share", "deterministic", "wanted"),
    [
        (64, 8, 32, 0, 1, False, 16),
        (64, 8, 8, 0, 1 / 2, False, 4),
        (64, 8, 8, 0, 3 / 4, False, 6),
        (64, 8, 8, 0, 1 / 3, False, 3),
        (64, 8, 8, 1, 1 / 2, False, 8),
        (64, 8, 100, 4, 1 / 2, True, 2),
        (4, 8, 16, 0, 1, False, 2),
        (64, 8, 1, 0, 1 / 8, False, 1),
    ],
)
def test_a_replica_takes_two_loads_of_rows_but_never_more_than_its_share(
    rows: int, size: int, groups: int, staleness: int, share: float, deterministic: bool, wanted: int
) -> None:
    found = group_limit(
        max_rows=rows,
        group_size=size,
        batch_groups=groups,
        max_staleness=staleness,
        share=share,
        deterministic=deterministic,
    )
    assert found == wanted


@given(shares=st.lists(st.floats(0.01, 1), min_size=1, max_size=9), groups=st.integers(1, 40))
def test_together_the_replicas_may_take_all_that_is_issued(shares: list[float], groups: int) -> None:
    limits = [
        group_limit(
            max_rows=10_000,
            group_size=2,
            batch_groups=groups,
            max_staleness=0,
            share=one / sum(shares),
            deterministic=False,
        )
        for one in shares
    ]
    assert sum(limits) >= groups


def test_the_dial_counts_the_time_without_work() -> None:
    dial = WaitingDial(0.0)
    dial.observe(True, 1.0)
    dial.observe(True, 2.0)
    dial.observe(False, 3.0)
    assert dial.read(4.0) == 0.5
    dial.observe(True, 4.0)
    assert dial.read(4.0 + MEMORY_S) == pytest.approx(0.5 / math.e)


@given(steps=st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=20))
def test_the_dial_stays_between_0_and_1(steps: list[tuple[bool, float]]) -> None:
    dial, now = WaitingDial(0.0), 0.0
    for busy, seconds in steps:
        now += seconds
        dial.observe(busy, now)
    assert 0 <= dial.read(now) <= 1
