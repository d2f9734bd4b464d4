"""The stage of direct preference optimization and its kin: the policy itself learns from ranked pairs.

The reference is the policy as it begins; its logprobs are known before the first step (`reference.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.trainer.algorithms.preference import preference_loss
from services.trainer.algorithms.segments import segment_sum
from services.trainer.backends.backend import Backend
from services.trainer.stages.examples import Pair
from services.trainer.stages.rows import make_rows


@dataclass(frozen=True, slots=True)
class ReferencedPair:
    """A pair, and what the reference says of it."""

    pair: Pair
    chosen: float
    """Summed logprob of the better answer's tokens, in nats."""
    rejected: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """See `services.trainer.stages.offline.Objective`."""

    kind: str
    """Of `PREFERENCE_LOSSES`."""
    beta: float
    label_smoothing: float
    logprob_chunk: int

    def units(self, examples: Sequence[ReferencedPair]) -> list[tuple[ReferencedPair, ...]]:
        """Pair by pair."""
        return [(one,) for one in examples]

    def tokens(self, unit: tuple[ReferencedPair, ...]) -> int:
        """Both sides, padded."""
        return sum(one.pair.row_tokens for one in unit)

    def rows(self, unit: tuple[ReferencedPair, ...]) -> list[tuple[int, int]]:
        """See `Objective`."""
        sides = [side for one in unit for side in (one.pair.chosen, one.pair.rejected)]
        return [(side.row_tokens, side.trained_tokens) for side in sides]

    def learned(self, unit: tuple[ReferencedPair, ...]) -> int:
        """See `Objective`: of both answers."""
        return sum(scored for _, scored in self.rows(unit))

    def weight(self, examples: Sequence[ReferencedPair]) -> int:
        """Pairs."""
        return len(examples)

    def sums(self, backend: Backend, units: Sequence[tuple[ReferencedPair, ...]]) -> dict[str, Tensor]:
        """Loss, accuracy and lead of the implicit rewards (beta times policy less reference), and these themselves."""
        pairs = [one for unit in units for one in unit]
        policy, lengths = answer_logprobs(backend, [one.pair for one in pairs], chunk=self.logprob_chunk)
        known = [[one.chosen for one in pairs], [one.rejected for one in pairs]]
        reference = torch.tensor(known, dtype=policy.dtype, device=policy.device)
        if self.kind == "ipo":
            policy, reference = policy / lengths, reference / lengths
        loss = preference_loss(
            *policy, *reference, beta=self.beta, kind=self.kind, label_smoothing=self.label_smoothing
        )
        chosen, rejected = self.beta * (policy - reference).detach()
        lead = chosen - rejected
        return {
            "loss": loss.sum(),
            "accuracy": ((lead.sign() + 1) / 2).sum(),
            "reward_margin": lead.sum(),
            "chosen_reward": chosen.sum(),
            "rejected_reward": rejected.sum(),
        }


def answer_logprobs(backend: Backend, pairs: Sequence[Pair], *, chunk: int) -> tuple[Tensor, Tensor]:
    """Summed logprobs [2, pairs] of both answers, the chosen ones first, and their lengths in tokens [2, pairs]."""
    sides = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    rows = make_rows([(side,) for side in sides], backend.device)
    scores = backend(rows.token_ids, rows.rows, rows.places, rows.targets, rows.temperature, chunk)
    return segment_sum(scores.logprobs, rows.lengths).view(2, -1), rows.lengths.view(2, -1)
