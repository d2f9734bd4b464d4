"""Filters and order of the list of rollouts."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.services.orchestrator.dashboard.readers.query import Query, arrange, select
from headrace.services.orchestrator.dashboard.readers.rollout_index import NO_FACTS


def facts() -> pa.Table:
    """Six rollouts of steps 1 to 3, two each."""
    columns: dict[str, list[Any]] = {
        "step": [1, 1, 2, 2, 3, 3],
        "place": [0, 1, 0, 1, 0, 1],
        "group_index": [0, 0, 1, 1, 2, 2],
        "reward": [0.0, 1.0, 0.5, None, 1.0, 0.25],
        "advantage": [-0.5, 0.5, 0.0, None, 0.375, -0.375],
        "tokens": [10, 20, 30, 40, 50, 60],
        "min_version": [0, 0, 0, 1, 1, 2],
        "max_version": [0, 0, 1, 1, 2, 2],
        "finish_reason": ["stop", "length", "stop", "stop", "length", "stop"],
        "replica_id": ["left", "left", "right", "right", "left", "right"],
        "set": ["", "", "", "", "easy", "hard"],
    }
    arrays = [pa.array(columns.get(one.name, [0] * 6), one.type) for one in NO_FACTS.schema]
    return pa.table(arrays, schema=NO_FACTS.schema)


def numbers(rows: pa.Table) -> list[int]:
    """Which of the six they are."""
    return [2 * (row["step"] - 1) + row["place"] for row in rows.to_pylist()]


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
        ({"set": "easy"}, [4]),
        ({"group_index": 1}, [2, 3]),
    ],
)
def test_a_row_must_satisfy_every_filter(how: dict[str, Any], found: list[int]) -> None:
    assert numbers(select(facts(), Query(**how))) == found


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
def test_sorting_puts_missing_values_last_and_ties_newest_first(sort: str, order: list[int]) -> None:
    assert arrange(facts(), sort).to_pylist() == order
