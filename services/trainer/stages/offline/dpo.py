"""The stage of direct preference optimization and its variants: the policy itself learns from ranked pairs.

The reference is the policy as it begins; its logprobs are known before the first step (`reference.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.losses.preference import preference_loss
from headrace.services.trainer.algorithms.names import PreferenceKind
from headrace.services.trainer.algorithms.segments import segment_sum
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.stages.offline.examples import PreferencePair
from headrace.services.trainer.stages.offline.rows import make_rows


@dataclass(frozen=True, slots=True)
class ReferencedPair:
    """A pair, with the logprobs of its answers under the reference."""

    pair: PreferencePair
    chosen: float
    """Summed logprob of the better answer's tokens, in nats."""
    rejected: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Implements `headrace.services.trainer.stages.offline.step.Objective` with a loss of the DPO family."""

    kind: PreferenceKind
    beta: float
    label_smoothing: float
    logprob_chunk: int

    def units(self, examples: Sequence[ReferencedPair]) -> list[tuple[ReferencedPair, ...]]:
        """Returns each pair as a unit of its own."""
        return [(one,) for one in examples]

    def tokens(self, unit: tuple[ReferencedPair, ...]) -> int:
        """Counts both sides, padded."""
        return sum(one.pair.row_tokens for one in unit)

    def rows(self, unit: tuple[ReferencedPair, ...]) -> list[tuple[int, int]]:
        """Returns both sides of each pair, with the head applied to their trained tokens."""
        sides = [side for one in unit for side in (one.pair.chosen, one.pair.rejected)]
        return [(side.row_tokens, side.trained_tokens) for side in sides]

    def learned(self, unit: tuple[ReferencedPair, ...]) -> int:
        """Counts the trained tokens of both answers."""
        return sum(scored for _, scored in self.rows(unit))

    def weight(self, examples: Sequence[ReferencedPair]) -> int:
        """Counts pairs."""
        return len(examples)

    def sums(self, backend: Backend, units: Sequence[tuple[ReferencedPair, ...]]) -> dict[str, Tensor]:
        """Sums loss, accuracy and margin of the implicit rewards, beta (policy - reference), and these themselves."""
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


def answer_logprobs(backend: Backend, pairs: Sequence[PreferencePair], *, chunk: int) -> tuple[Tensor, Tensor]:
    """Returns summed logprobs [2, pairs] of both answers, chosen first, and their lengths in tokens [2, pairs]."""
    sides = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    rows = make_rows([(side,) for side in sides], backend.device)
    scores = backend(rows.token_ids, rows.rows, rows.places, rows.targets, rows.temperature, chunk)
    return segment_sum(scores.logprobs, rows.lengths).view(2, -1), rows.lengths.view(2, -1)
