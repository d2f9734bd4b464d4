"""What the policy can compute at all: a token or a length beyond it would end the trainer, and its replay again."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np

from headrace.wire.contracts import ScoredGroup
from headrace.wire.errors import ContractError

if TYPE_CHECKING:
    from headrace.services.trainer.model.model import TrainedModule


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """Size of the vocabulary, and the longest context and completion together; None = no limit."""

    vocab: int | None = None
    context_length: int | None = None

    @classmethod
    def of(cls, policy: "TrainedModule", context_length: int) -> Self:
        """Limits of a loaded policy; `context_length`: the engines', 0 = the model's own."""
        config = policy.model.config.get_text_config()
        own = getattr(config, "max_position_embeddings", None)
        return cls(vocab=int(config.vocab_size), context_length=context_length or own)

    def check(self, scored: ScoredGroup) -> None:
        """Raises ContractError for a rollout that the policy cannot compute, in any of its segments."""
        for rollout in scored.group.rollouts:
            segments = rollout.segments(scored.group.prompt)
            ends = [*(segment.start for segment in segments), len(rollout.token_ids)]
            for segment, (start, end) in zip(segments, pairwise(ends), strict=True):
                sampled = rollout.token_ids[start:end]
                kept = np.empty(0, np.int32) if rollout.kept is None else rollout.kept.ids
                highest = max(int(ids.max()) for ids in (segment.context_ids, sampled, kept) if len(ids))
                if self.vocab is not None and highest >= self.vocab:
                    raise ContractError(
                        "bad_tokens", f"{rollout.rollout_id}: token {highest} of a vocabulary of {self.vocab}"
                    )
                length = len(segment.context_ids) + len(sampled)
                if self.context_length is not None and length > self.context_length:
                    raise ContractError(
                        "context_overflow",
                        f"{rollout.rollout_id}: {length} tokens in a context of {self.context_length}",
                    )


UNLIMITED = TokenLimits()
