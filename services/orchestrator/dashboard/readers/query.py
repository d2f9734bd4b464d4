"""Filters and sorts rollouts. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.services.orchestrator.dashboard.readers.rollout_file import Names, RolloutFacts

Positions = NDArray[np.int64]

SORTS = ("step", "reward", "advantage", "tokens", "version")


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
    group_index: int | None = None
    text: str | None = None
    sort: str = "-step"
    """One of `SORTS`; with `-` in descending order. Missing values come last."""


def select(facts: RolloutFacts, names: Names, query: Query) -> Positions:
    """Ascending positions of the rollouts that match, apart from the text condition."""
    wanted = slice(
        0 if query.step_from is None else int(np.searchsorted(facts.step, query.step_from, side="left")),
        len(facts) if query.step_to is None else int(np.searchsorted(facts.step, query.step_to, side="right")),
    )
    part = facts.at(wanted)
    mask = np.ones(len(part), np.bool_)
    if query.reward_min is not None:
        mask &= part.reward >= query.reward_min
    if query.reward_max is not None:
        mask &= part.reward <= query.reward_max
    if query.version is not None:
        mask &= (part.min_version <= query.version) & (part.max_version >= query.version)
    if query.finish is not None:
        mask &= part.finish_reason == names.finish.find(query.finish)
    if query.replica is not None:
        mask &= part.replica_id == names.replica.find(query.replica)
    if query.group_index is not None:
        mask &= part.group_index == query.group_index
    return np.flatnonzero(mask) + wanted.start


def arrange(facts: RolloutFacts, positions: Positions, sort: str) -> Positions:
    """The same positions in the requested order; ties are ordered newest step first, then as in the file."""
    falling = sort.startswith("-")
    name = sort.removeprefix("-")
    if name == "step" and not falling:
        return positions
    newest = positions[np.argsort(-facts.step[positions], kind="stable")]
    if name == "step":
        return newest
    column = facts.max_version if name == "version" else getattr(facts, name)
    values = column[newest].astype(np.float64)
    return newest[np.argsort(-values if falling else values, kind="stable")]
