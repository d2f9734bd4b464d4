"""The language-model loss on completions that were right (VAPO). Axes: tokens = trained tokens, rollouts = owners."""

import torch
from beartype import beartype
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.segments import spread


@jaxtyped(typechecker=beartype)
def positive_tokens(rewards: Float[Tensor, " rollouts"], lengths: Int[Tensor, " rollouts"]) -> Bool[Tensor, " tokens"]:
    """Tokens of rollouts whose reward is above 0; an abstention (NaN) is not."""
    return spread(rewards > 0, lengths)


@jaxtyped(typechecker=beartype)
def positive_nll(
    logprobs: Float[Tensor, " tokens"], rewards: Float[Tensor, " rollouts"], lengths: Int[Tensor, " rollouts"]
) -> Float[Tensor, " tokens"]:
    """-log p at the tokens of `positive_tokens`, else 0 (arXiv 2504.05118, equation 12; weight 0.1).

    The paper's is the mean over those tokens: divide by their count in the whole optimizer step.
    """
    return torch.where(positive_tokens(rewards, lengths), -logprobs, 0.0)
