"""The reward-model stage: a scalar head scores each answer at its last token; the better one is to score higher.

Bradley-Terry with a margin (Llama 2, arXiv 2307.09288) and centering (arXiv 2312.09244); the mean over a step's pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.losses.preference import reward_model_loss
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.stages.offline.examples import PreferencePair
from headrace.services.trainer.stages.offline.rows import last_scores


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedScores:
    """Implements `headrace.services.trainer.stages.offline.step.Objective` with the Bradley-Terry loss."""

    centering: float

    def units(self, examples: Sequence[PreferencePair]) -> list[tuple[PreferencePair, ...]]:
        """Returns each pair as a unit of its own."""
        return [(pair,) for pair in examples]

    def tokens(self, unit: tuple[PreferencePair, ...]) -> int:
        """Counts both sides, padded, including the last token, which is the one that is scored."""
        return sum(pair.row_tokens + 2 for pair in unit)

    def rows(self, unit: tuple[PreferencePair, ...]) -> list[tuple[int, int]]:
        """Returns all tokens of both sides of each pair, with the head applied to the last one only."""
        return [(len(side.token_ids), 1) for pair in unit for side in (pair.chosen, pair.rejected)]

    def learned(self, unit: tuple[PreferencePair, ...]) -> int:
        """Counts all tokens of both sides."""
        return sum(tokens for tokens, _ in self.rows(unit))

    def weight(self, examples: Sequence[PreferencePair]) -> int:
        """Counts pairs."""
        return len(examples)

    def sums(self, backend: Backend, units: Sequence[tuple[PreferencePair, ...]]) -> dict[str, Tensor]:
        """Sums loss, accuracy (equal scores count half), margin of the better answer, and the scores themselves."""
        pairs = [pair for unit in units for pair in unit]
        sides = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
        scores = last_scores(backend, sides)
        chosen, rejected = scores[: len(pairs)], scores[len(pairs) :]
        margins = torch.tensor([pair.margin for pair in pairs], dtype=scores.dtype, device=scores.device)
        loss = reward_model_loss(chosen, rejected, margin=margins, centering=self.centering)
        lead = (chosen - rejected).detach()
        return {
            "loss": loss.sum(),
            "accuracy": ((lead.sign() + 1) / 2).sum(),
            "margin": lead.sum(),
            "chosen_score": chosen.detach().sum(),
            "rejected_score": rejected.detach().sum(),
        }
