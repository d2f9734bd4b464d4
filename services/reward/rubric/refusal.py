"""Values that a scorer may not return: NaN, infinity, a text, a value out of its range. Pure."""

import math
from typing import TypeGuard

import numpy as np

from headrace.services.reward.scorer import Sample, Verdict

KINDS = ("not_a_number", "not_finite", "out_of_range", "bad_token_scores", "missing")
"""Why a verdict is refused; a metric label."""
_LARGEST = 1000.0
"""Largest magnitude of a token score."""


def refusal(verdict: object, sample: Sample, *, low: float, high: float) -> tuple[str, str] | None:
    """Kind and description of the problem; None = the verdict is valid."""
    if not isinstance(verdict, Verdict):
        return "missing", f"{verdict!r} is no verdict"
    if verdict.value is None:
        return None
    value: object = verdict.value
    if not _is_number(value):
        return "not_a_number", f"{str(value)[:40]!r} is no number"
    if not is_finite_number(value):
        return "not_finite", "not finite: NaN, infinite, or beyond all floats"
    if not low <= value <= high:
        return "out_of_range", f"{value:g} is outside of {low:g} to {high:g}"
    words = _token_words(verdict, sample)
    return ("bad_token_scores", words) if words else None


def is_finite_number(value: object) -> bool:
    """Whether it is a number that a float can hold."""
    try:
        return _is_number(value) and math.isfinite(value)
    except OverflowError:  # An integer beyond all floats.
        return False


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _token_words(verdict: Verdict, sample: Sample) -> str | None:
    scores = verdict.token_scores
    if scores is None:
        return None
    if sample.completion_ids is None:
        return "token scores for a sample that came as text"
    if scores.dtype != np.float32 or scores.shape != sample.completion_ids.shape:
        return f"token scores must be float32 [{len(sample.completion_ids)}]"
    if (np.abs(np.nan_to_num(scores, posinf=np.inf, neginf=-np.inf)) > _LARGEST).any():
        return f"token scores must lie within {_LARGEST:g} of 0"
    if sample.loss_mask is not None and np.nan_to_num(scores[~sample.loss_mask]).any():
        return "a masked token has a score, but the policy did not sample it"
    return None
