"""The components of a reward: what one rollout's was made of, and the numbers of a batch.

A component is a scorer of the rubric; a part of one, `SCORER.PART`, which is shown and does not count; `turns`, the sum
of a rollout's token scores; or what the trainer adds: `overlong_buffer` and `kl`. `combination` is what the weights
leave unexplained: of a product, a median, a closed gate, and of a score from an older build, which has no weights. The
sum of weight times value over the components is the reward that is trained on.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.wire.contracts.scores import Score

TURNS, OVERLONG, KL, COMBINATION = "turns", "overlong_buffer", "kl", "combination"
ADDED = (TURNS, OVERLONG, KL, COMBINATION)
"""Components that no scorer of the rubric may be called."""
MOST_NAMES, MOST_PAIRS = 32, 64
"""Components, and pairs of component and data source, that a batch has numbers for."""
_EXACT = 1e-12
"""Largest remainder of a score that rounding explains, relative to its terms."""
_NAME_LENGTH = 48


@dataclass(frozen=True, slots=True)
class Component:
    """One component of one rollout's reward."""

    value: float | None
    """None = it abstained."""
    weight: float


Components = Mapping[str, Component]
_NO_REMAINDER = {COMBINATION: Component(0.0, 1.0)}


def components_of(score: Score, shaping: Mapping[str, float] | None = None) -> dict[str, Component]:
    """The components of a rollout's reward, by name; `shaping` is what the trainer added."""
    found = {name: Component(score.components.get(name), weight) for name, weight in score.weights.items()}
    found |= {name: Component(value, 0.0) for name, value in score.components.items() if name not in found}
    if score.value is None:
        return found
    terms = [one.value * one.weight for one in found.values() if one.value is not None]
    remainder = score.value - math.fsum(terms)
    if abs(remainder) > _EXACT * max(1.0, *map(abs, terms), abs(score.value)):
        found[COMBINATION] = Component(remainder, 1.0)
    if score.token_scores is not None:
        found[TURNS] = Component(token_total(score), 1.0)
    return found | {name: Component(value, 1.0) for name, value in (shaping or {}).items()}


def token_total(score: Score) -> float:
    """Sum of a score's token scores, in float64; 0 without any."""
    return 0.0 if score.token_scores is None else float(np.nansum(score.token_scores, dtype=np.float64))


def total(components: Components) -> float:
    """The reward that is trained on."""
    return math.fsum(one.value * one.weight for one in components.values() if one.value is not None)


def component_key(name: str) -> str:
    """A component, or a data source, as a part of a metric's key: at most 48 characters of `[A-Za-z0-9_.:-]`."""
    key = re.sub(r"[^A-Za-z0-9_.:-]", "_", name)
    if key == name and 0 < len(key) <= _NAME_LENGTH:
        return key
    return f"{key[: _NAME_LENGTH - 5]}_{hashlib.sha256(name.encode()).hexdigest()[:4]}"


@dataclass(frozen=True, slots=True)
class RewardRow:
    """One rollout of a batch."""

    components: Components
    is_scored: bool = True
    """Whether it has a reward."""
    source: str = ""
    """Data source of its row; empty = the row names none."""


def batch_numbers(rows: Sequence[RewardRow]) -> dict[str, float]:
    """The numbers of a batch's rewards, by key.

    `reward_mean`, `_std`, `_min`, `_max`: of the reward trained on. `rewards/NAME/mean`, `/std`: over the rollouts that
    have the component; `/abstained`: share of those that should have it; `/weighted`, if it counts: what it adds to
    `reward_mean`. `rewards/NAME/SOURCE/…`: the first three for each data source. `rewards_left_out`: beyond the bounds.
    """
    totals = np.array([total(row.components) for row in rows if row.is_scored], dtype=np.float64)
    if any(COMBINATION in row.components for row in rows):
        # Where the weights happen to explain a score, nothing is left: that is 0, not absent.
        rows = [replace(row, components={**_NO_REMAINDER, **row.components}) if row.is_scored else row for row in rows]
    names = _ordered(rows)
    pairs = Counter((name, row.source) for row in rows if row.source for name in row.components)
    kept = set(names[:MOST_NAMES])
    most = [pair for pair, _ in pairs.most_common() if pair[0] in kept]
    found: dict[str, float] = {}
    if len(totals):
        found = {f"reward_{what}": float(getattr(totals, what)()) for what in ("mean", "std", "min", "max")}
    for name in names[:MOST_NAMES]:
        key, own = f"rewards/{component_key(name)}", [row for row in rows if name in row.components]
        found |= _numbers(key, [row.components[name] for row in own])
        if any(row.components[name].weight for row in own):
            added = [total({name: row.components[name]}) for row in own if row.is_scored]
            found[f"{key}/weighted"] = math.fsum(added) / max(1, len(totals))
    for name, source in most[:MOST_PAIRS]:
        of_source = [row.components[name] for row in rows if row.source == source and name in row.components]
        found |= _numbers(f"rewards/{component_key(name)}/{component_key(source)}", of_source)
    left_out = len(names[MOST_NAMES:]) + len(most[MOST_PAIRS:])
    return found | ({"rewards_left_out": left_out} if left_out else {})


def _ordered(rows: Iterable[RewardRow]) -> list[str]:
    """Names of all components: those that count before the others, which users' code may name without bound."""
    counts: dict[str, bool] = {}
    for row in rows:
        for name, one in row.components.items():
            counts[name] = counts.get(name, False) or one.weight != 0 or "." not in name
    return sorted(counts, key=lambda name: (not counts[name], name))


def _numbers(key: str, own: Sequence[Component]) -> dict[str, float]:
    values = np.array([one.value for one in own if one.value is not None], dtype=np.float64)
    found = {f"{key}/abstained": 1 - len(values) / len(own)}
    return {f"{key}/mean": float(values.mean()), f"{key}/std": float(values.std()), **found} if len(values) else found
