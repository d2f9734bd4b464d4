"""The built-in scorers. Each takes the completion's text and the data row's columns; pure, and it may raise."""

import functools
import re
from collections.abc import Mapping
from typing import Any

from services.reward.scorers.numbers import final_number
from wire.contracts import FinishReason, Rollout

Columns = Mapping[str, Any]


def _column(columns: Columns, name: str) -> str:
    if name not in columns:
        raise KeyError(f"the data has no column {name!r}; columns: {', '.join(sorted(columns)) or 'none'}")
    return str(columns[name])


def exact_match(rollout: Rollout, columns: Columns, *, answer: str = "answer", strip: bool = True) -> float:
    """1 if the completion is the column `answer`, else 0; white space around both is ignored unless `strip = false`."""
    said, wanted = rollout.text, _column(columns, answer)
    return float(said.strip() == wanted.strip()) if strip else float(said == wanted)


def numeric(rollout: Rollout, columns: Columns, *, answer: str = "answer", tolerance: float = 0.0) -> float:
    r"""1 if the completion's number equals the answer's (`####`, `\boxed{}`, else the last one), else 0.

    Raises ValueError if the answer itself holds no number: the row is broken, not the rollout.
    """
    text = _column(columns, answer)
    wanted = final_number(text)
    if wanted is None:
        raise ValueError(f"the answer {text[:80]!r} holds no number")
    said = final_number(rollout.text)
    return float(said is not None and abs(float(said) - float(wanted)) <= tolerance)


@functools.lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def matches_format(rollout: Rollout, columns: Columns, *, pattern: str) -> float:
    """1 if the regular expression matches the whole completion (`.` matches line ends), else 0."""
    return float(_compiled(pattern).fullmatch(rollout.text.strip()) is not None)


def length(rollout: Rollout, columns: Columns, *, target: int, slope: float = 1.0) -> float:
    """0 up to `target` tokens, then falling by `slope` for each further `target` tokens, to -1 at the lowest.

    A completion that was cut off by the limit gets -1.
    """
    if rollout.finish_reason is FinishReason.LENGTH:
        return -1.0
    excess = max(0, rollout.trained_tokens - target) / target
    return max(-1.0, -slope * excess)
