"""Filters and sorts rollouts. Pure."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MOST = 2**63 - 1
SORTS = ("step", "reward", "advantage", "tokens", "version", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Filter and order; all conditions that are not None must hold."""

    step_from: int | None = None
    step_to: int | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    version: int | None = None
    """A version under which tokens were sampled: between the rollout's oldest and newest."""
    finish: str | None = None
    replica: str | None = None
    set: str | None = None
    """Name of an evaluation set."""
    group_index: int | None = None
    text: str | None = None
    component: str | None = None
    """A component that the rollout has a score of, between the two bounds."""
    component_min: float | None = None
    component_max: float | None = None
    sort: str = "-step"
    """One of `SORTS`; with `-` in descending order. Missing values come last; the newest step seeds `random`."""

    @property
    def said(self) -> "Query | None":
        """The conditions that only the texts of a file decide; None without any."""
        found = Query(
            text=self.text, component=self.component, component_min=self.component_min, component_max=self.component_max
        )
        return found if self.text or self.component else None


def select(facts: pa.Table, query: Query) -> pa.Table:
    """The rollouts that match, apart from the conditions of `said`, in the order of `facts`."""
    field = pc.field
    conditions = (
        (query.step_from, field("step") >= _held(query.step_from)),
        (query.step_to, field("step") <= _held(query.step_to)),
        (query.reward_min, field("reward") >= query.reward_min),
        (query.reward_max, field("reward") <= query.reward_max),
        (
            query.version,
            (field("min_version") <= _held(query.version)) & (field("max_version") >= _held(query.version)),
        ),
        (query.finish, field("finish_reason") == query.finish),
        (query.replica, field("replica_id") == query.replica),
        (query.set, field("set") == query.set),
        (query.group_index, field("group_index") == _held(query.group_index)),
    )
    for value, holds in conditions:
        if value is not None:
            facts = facts.filter(holds)
    return facts


def _held(number: int | None) -> int | None:
    """The number, or the last one that a column holds before it."""
    return None if number is None else max(-_MOST, min(number, _MOST))


def arrange(facts: pa.Table, sort: str) -> pa.UInt64Array:
    """Indices of all rows in the requested order; ties are ordered newest step first, then as in the file."""
    name = sort.removeprefix("-")
    if name == "random":
        newest = pc.max(facts["step"]).as_py() or 0
        return pa.array(np.random.default_rng(newest).permutation(len(facts)).astype(np.uint64))
    key = "max_version" if name == "version" else name
    order = [(key, "descending" if sort.startswith("-") else "ascending"), ("step", "descending")]
    return pc.sort_indices(facts, sort_keys=order[: 1 if key == "step" else 2])
