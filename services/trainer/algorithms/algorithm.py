"""What an algorithm is to the training step: advantages from rewards, a loss from logprobs.

A new algorithm is one small file with a builder like `grpo.grpo`, and one line in `registry.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from services.trainer.algorithms.policy_loss import PolicyLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTokens:
    """The completion tokens of a micro-batch, rollout after rollout."""

    logprobs: Float[Tensor, " tokens"]
    """Of the policy in training; carries the gradient."""
    behaviour_logprobs: Float[Tensor, " tokens"]
    """As the engine that sampled them reported."""
    advantages: Float[Tensor, " tokens"]
    lengths: Int[Tensor, " rollouts"]
    """Tokens of each rollout, for losses on whole sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Two pure functions with their hyper-parameters bound."""

    advantages: Callable[[Sequence[Float[Tensor, " rollouts"]]], list[Float[Tensor, " rollouts"]]]
    """Rewards of all groups of the step (one tensor a group) to advantages, in the same order."""
    policy_loss: Callable[[PolicyTokens], PolicyLoss]
