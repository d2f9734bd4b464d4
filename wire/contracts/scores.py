"""The score of one rollout."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.wire.errors import ContractError


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The reward of one rollout and what it was made of. Axis: completion = its tokens."""

    rollout_id: str
    value: float | None
    """None = abstained: the rollout is left out of the baseline and of the loss. Never a zero in place of it."""
    components: dict[str, float] = field(default_factory=dict)
    """Score of each scorer, by its name; those that abstained are absent."""
    reason: str = ""
    """Why it abstained, or what the verdict rests on; for people."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What each scorer took."""
    token_scores: NDArray[np.float32] | None = None
    """float32 [completion]: rewards of single tokens (process rewards), beside `value`; NaN = this token has none, and
    0 or NaN where masked."""
    answer_start: int | None = 0
    """Characters of the rollout's text that are thoughts; None = a thought never closed: there is no answer."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weight of each member of the rubric in `value`, by its name, those that abstained too; none in messages of older
    builds."""

    def __post_init__(self) -> None:
        numbers = [*self.components.values(), *self.seconds.values(), *self.weights.values()]
        if self.value is not None:
            numbers.append(self.value)
        if not all(math.isfinite(number) for number in numbers):
            raise ContractError("bad_score", f"{self.rollout_id}: a score is not finite")
        if self.answer_start is not None and self.answer_start < 0:
            raise ContractError("bad_score", f"{self.rollout_id}: its answer starts at {self.answer_start}")
        if self.token_scores is not None:
            self._check_tokens(self.token_scores)

    def _check_tokens(self, token_scores: NDArray[np.float32]) -> None:
        if self.value is None:
            raise ContractError("bad_score", f"{self.rollout_id}: it abstained, and yet scores tokens")
        if token_scores.dtype != np.float32 or token_scores.ndim != 1 or np.isinf(token_scores).any():
            raise ContractError(
                "bad_score", f"{self.rollout_id}: token scores must be float32 [completion], finite or NaN"
            )
