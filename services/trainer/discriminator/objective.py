"""The discriminator's objective, for the loop that all stages on given examples share."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.losses.discrimination import discrimination_loss
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.discriminator.examples import Labelled
from headrace.services.trainer.stages.offline.rows import last_scores

_SIDES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TellApart:
    """Implements `stages.offline.step.Objective`: the mean over both sides of the mean loss of their examples."""

    label_smoothing: float

    def units(self, examples: Sequence[Labelled]) -> list[tuple[Labelled, ...]]:
        """Returns each example as a unit of its own."""
        return [(labelled,) for labelled in examples]

    def tokens(self, unit: tuple[Labelled, ...]) -> int:
        """Counts all tokens, including the last one, which is the one that is scored."""
        return sum(len(labelled.example.token_ids) for labelled in unit)

    def rows(self, unit: tuple[Labelled, ...]) -> list[tuple[int, int]]:
        """Returns all tokens of each example, with the head applied to the last one only."""
        return [(len(labelled.example.token_ids), 1) for labelled in unit]

    def learned(self, unit: tuple[Labelled, ...]) -> int:
        """Counts all tokens that are read."""
        return self.tokens(unit)

    def weight(self, examples: Sequence[Labelled]) -> int:
        """Returns 2, the number of sides: each contributes the mean over its examples."""
        return _SIDES

    def sums(self, backend: Backend, units: Sequence[tuple[Labelled, ...]]) -> dict[str, Tensor]:
        """Sums the loss, and for each side the share classified correctly (a logit of 0 counts half)."""
        examples = [labelled for unit in units for labelled in unit]
        logits = last_scores(backend, [labelled.example for labelled in examples])
        is_reference = torch.tensor([labelled.is_reference for labelled in examples], device=logits.device)
        share = torch.tensor([labelled.share for labelled in examples], dtype=logits.dtype, device=logits.device)
        loss = discrimination_loss(logits, is_reference, label_smoothing=self.label_smoothing)
        signs = logits.detach().sign() * torch.where(is_reference, 1.0, -1.0)
        right = (signs + 1) / 2 * share * _SIDES
        return {
            "loss": (loss * share).sum(),
            "accuracy_rollouts": right[~is_reference].sum(),
            "accuracy_references": right[is_reference].sum(),
        }
