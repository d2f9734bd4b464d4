"""How much a replica takes, and how it counts its idle time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.rollout.replica.capacity import RowPool, group_limit
from headrace.services.rollout.replica.waiting_dial import MEMORY_S, WaitingDial


@pytest.mark.parametrize(
    ("groups", "staleness", "share", "deterministic", "wanted"),
    [
        (32, 0, 1, False, 32),
        (8, 0, 3 / 4, False, 6),
        (8, 0, 1 / 3, False, 3),
        (8, 1, 1 / 2, False, 8),
        (100, 4, 1 / 2, True, 2),
        (1, 0, 1 / 8, False, 1),
    ],
)
def test_a_replica_takes_its_share_of_the_credit_at_most(
    groups: int, staleness: int, share: float, deterministic: bool, wanted: int
) -> None:
    assert group_limit(share, batch_groups=groups, max_staleness=staleness, deterministic=deterministic) == wanted


def test_groups_are_taken_while_fewer_rollouts_wait_than_there_are_rows() -> None:
    rows = RowPool(16, 8)
    assert [rows.groups_ahead(waiting) for waiting in (0, 1, 8, 15, 16, 40)] == [2, 2, 1, 1, 0, 0]


@given(shares=st.lists(st.floats(0.01, 1), min_size=1, max_size=9), groups=st.integers(1, 40))
def test_together_the_replicas_may_take_all_that_is_issued(shares: list[float], groups: int) -> None:
    limits = [
        group_limit(one / sum(shares), batch_groups=groups, max_staleness=0, deterministic=False) for one in shares
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
