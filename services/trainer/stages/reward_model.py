"""The reward-model stage: a scalar head scores each answer at its last token; the better one is to score higher.

Bradley-Terry with a margin (Llama 2, arXiv 2307.09288) and centering (arXiv 2312.09244); the mean over a step's pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.trainer.algorithms.preference import reward_model_loss
from services.trainer.backends.backend import Backend
from services.trainer.stages.examples import Pair
from services.trainer.stages.rows import last_scores


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedScores:
    """See `services.trainer.stages.offline.Objective`."""

    centering: float

    def units(self, examples: Sequence[Pair]) -> list[tuple[Pair, ...]]:
        """Pair by pair."""
        return [(pair,) for pair in examples]

    def tokens(self, unit: tuple[Pair, ...]) -> int:
        """Both sides, padded, with the last token: it is scored."""
        return sum(pair.row_tokens + 2 for pair in unit)

    def rows(self, unit: tuple[Pair, ...]) -> list[tuple[int, int]]:
        """See `Objective`: the last token goes through the model, too, and it alone is scored."""
        return [(len(side.token_ids), 1) for pair in unit for side in (pair.chosen, pair.rejected)]

    def learned(self, unit: tuple[Pair, ...]) -> int:
        """See `Objective`."""
        return sum(tokens for tokens, _ in self.rows(unit))

    def weight(self, examples: Sequence[Pair]) -> int:
        """Pairs."""
        return len(examples)

    def sums(self, backend: Backend, units: Sequence[tuple[Pair, ...]]) -> dict[str, Tensor]:
        """Loss, accuracy (equal scores count half), by how much the better one leads, and the scores themselves."""
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
