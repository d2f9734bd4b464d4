"""Filters and order of the list of rollouts."""

from typing import Any

import numpy as np
import pytest

from headrace.services.orchestrator.dashboard.readers.query import Query, arrange, select
from headrace.services.orchestrator.dashboard.readers.rollout_file import Names, RolloutFacts


def facts() -> tuple[RolloutFacts, Names]:
    """Six rollouts of steps 1 to 3, two each."""
    names = Names()
    stop, cut = names.finish.number("stop"), names.finish.number("length")
    left, right = names.replica.number("left"), names.replica.number("right")
    return RolloutFacts(
        step=np.array([1, 1, 2, 2, 3, 3], np.int32),
        group_index=np.array([0, 0, 1, 1, 2, 2], np.int64),
        rollout_index=np.array([0, 1, 0, 1, 0, 1], np.int32),
        reward=np.array([0.0, 1.0, 0.5, np.nan, 1.0, 0.25]),
        advantage=np.array([-0.5, 0.5, 0.0, np.nan, 0.375, -0.375]),
        tokens=np.array([10, 20, 30, 40, 50, 60], np.int32),
        min_version=np.array([0, 0, 0, 1, 1, 2], np.int32),
        max_version=np.array([0, 0, 1, 1, 2, 2], np.int32),
        finish_reason=np.array([stop, cut, stop, stop, cut, stop], np.int16),
        replica_id=np.array([left, left, right, right, left, right], np.int16),
    ), names


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"step_from": 2}, [2, 3, 4, 5]),
        ({"step_to": 1}, [0, 1]),
        ({"step_from": 2, "step_to": 2}, [2, 3]),
        ({"step_from": 9}, []),
        ({"step_from": 3, "step_to": 1}, []),
        ({"reward_min": 0.5}, [1, 2, 4]),
        ({"reward_max": 0.25}, [0, 5]),
        ({"version": 1}, [2, 3, 4]),
        ({"finish": "length"}, [1, 4]),
        ({"finish": "never"}, []),
        ({"replica": "right", "step_from": 3}, [5]),
        ({"group_index": 1}, [2, 3]),
    ],
)
def test_all_that_is_asked_must_hold(how: dict[str, Any], found: list[int]) -> None:
    rows, names = facts()
    assert select(rows, names, Query(**how)).tolist() == found


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("step", [0, 1, 2, 3, 4, 5]),
        ("-step", [4, 5, 2, 3, 0, 1]),
        ("reward", [0, 5, 2, 4, 1, 3]),
        ("-reward", [4, 1, 2, 5, 0, 3]),
        ("-advantage", [1, 4, 2, 5, 0, 3]),
        ("tokens", [0, 1, 2, 3, 4, 5]),
        ("-version", [4, 5, 2, 3, 0, 1]),
    ],
)
def test_the_order_puts_what_has_no_value_last_and_equals_newest_first(sort: str, order: list[int]) -> None:
    rows, _ = facts()
    assert arrange(rows, np.arange(6), sort).tolist() == order
