"""The numbers of one evaluation set: rewards, accuracy, pass@k, avg@k. Pure."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import JsonValue

from headrace.wire.contracts import Score
from headrace.wire.telemetry.reward_components import Component, RewardRow, batch_numbers, components_of

_CORRECT = 0.5
"""Between the two scores of a set whose scores are all 0 or 1."""
_NORMAL_95 = 1.96
"""Quantile of the standard normal distribution for an interval of 95%."""
_NAMED = 5


def numbers_of(
    results: Sequence[tuple[str, Sequence[Score]]],
    *,
    k: int = 1,
    component: str = "",
    correct_above: float | None = None,
    was_graded: bool = False,
) -> dict[str, JsonValue]:
    """The numbers of a set; `results`: sample id and scores of the rollouts of each of its prompts.

    `prompts` have a scored rollout, `missing` have none. `reward_mean`, `reward_std` and `rewards/NAME/...` are over
    all scored rollouts. `accuracy`, their share that is correct, and what follows from it are there if `correct_above`
    is set or all scores are 0 or 1, unless the set `was_graded`: it once had other scores. `pass_at_k` and `avg_at_k`,
    the mean over prompts of the correct share, are over prompts with k scored rollouts; `avg_at_k_error` is half the
    interval of 95% about it. `short_prompts` counts those with fewer, and `short` names the first of them.
    """
    rows = [(name, [_row(score, component) for score in scores]) for name, scores in results]
    # What is right or wrong is the scorers' value: without the scores of single tokens, and to the last bit.
    values = [
        (name, [value for one in scores if (value := _value(one, component)) is not None]) for name, scores in results
    ]
    tried = [(name, own) for name, own in values if own]
    found: dict[str, JsonValue] = {
        "k": k,
        "prompts": len(tried),
        "missing": len(results) - len(tried),
        "abstained": sum(not row.is_scored for _, some in rows for row in some),
    }
    found |= batch_numbers([row for _, some in rows for row in some])
    is_binary = all(value in (0.0, 1.0) for _, values in tried for value in values)
    if tried and (correct_above is not None or (is_binary and not was_graded)):
        found |= _correct(tried, _CORRECT if correct_above is None else correct_above, k)
    return found


def was_graded(rows: Sequence[Mapping[str, JsonValue]]) -> bool:
    """Whether an earlier evaluation of a set had scored prompts and no accuracy. Older builds always wrote one."""
    return any(row.get("prompts") and row.get("accuracy") is None for row in rows)


def _value(score: Score, component: str) -> float | None:
    return score.components.get(component) if component else score.value


def _row(score: Score, component: str) -> RewardRow:
    """A rollout's reward; with `component` it consists of that one alone."""
    if not component:
        return RewardRow(components_of(score), is_scored=score.value is not None)
    value = _value(score, component)
    return RewardRow({component: Component(value, 1.0)}, is_scored=value is not None)


def _correct(tried: Sequence[tuple[str, Sequence[float]]], above: float, k: int) -> dict[str, JsonValue]:
    right = np.array([sum(value > above for value in values) for _, values in tried], dtype=np.float64)
    counts = np.array([len(values) for _, values in tried])
    found: dict[str, JsonValue] = {"accuracy": float(right.sum() / counts.sum())}
    shares = (right / counts)[counts >= k]
    if len(shares):
        found |= {"pass_at_k": float((shares > 0).mean()), "avg_at_k": float(shares.mean())}
    if len(shares) > 1:
        found["avg_at_k_error"] = _NORMAL_95 * float(shares.std(ddof=1)) / math.sqrt(len(shares))
    short: list[JsonValue] = [name for name, values in tried if len(values) < k]
    return found | ({"short_prompts": len(short), "short": short[:_NAMED]} if short else {})
