"""What an algorithm is to the training step: an estimate of advantages, and a loss from logprobs. Pure functions.

`parts.py` declares the parts; a recipe chooses among them and sets their values. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTokens:
    """The trained tokens of a micro-batch, rollout after rollout."""

    logprobs: Float[Tensor, " tokens"]
    """Logprobs under the policy in training; these carry the gradient."""
    old: Float[Tensor, " tokens"]
    """What ratios are taken to: the engine's logprobs, or the trainer's at batch time."""
    advantages: Float[Tensor, " tokens"]
    lengths: Int[Tensor, " rollouts"]
    """Tokens of each rollout, for losses on whole sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """The loss of each token and what the metrics need of it."""

    per_token: Float[Tensor, " tokens"]
    clipped: Bool[Tensor, " tokens"]
    """Where a bound won: no gradient by way of the advantage (CISPO: a smaller or larger one than the ratio's)."""
    kl: Float[Tensor, " tokens"]
    """Detached k1 estimate of KL(old || policy), nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """All that is known of a whole step's rollouts before its first update; every rank has the same.

    Two groups, of two rollouts and of one, and GRPO's advantage of each of their six tokens:

    >>> import torch
    >>> from headrace.services.trainer.algorithms.advantages.baselines import group
    >>> from headrace.services.trainer.algorithms.parts import Normalization
    >>> signals = Signals(
    ...     rewards=torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64), group_sizes=(2, 1), baselines=None,
    ...     lengths=torch.tensor([3, 2, 1]), truncated=torch.zeros(3, dtype=torch.bool),
    ... )
    >>> group(signals, Normalization(normalize_std=False)).advantages.tolist()
    [0.5, 0.5, 0.5, -0.5, -0.5, 0.0]
    """

    rewards: Float[Tensor, " rollouts"]
    """float64, of whole rollouts, without their token scores; NaN: not scored."""
    group_sizes: tuple[int, ...]
    """Trained rollouts of each group, which may differ; the rollouts are in the groups' order."""
    baselines: Float[Tensor, " groups"] | None
    """Reward of each group's greedy rollout, its token scores included."""
    lengths: Int[Tensor, " rollouts"]
    """Trained tokens of each rollout."""
    truncated: Bool[Tensor, " rollouts"]
    """Cut at the longest length."""
    token_scores: Float[Tensor, " tokens"] | None = None
    """float64: rewards of single tokens (process rewards), beside `rewards`; NaN: the token has none."""
    penalties: Float[Tensor, " tokens"] | None = None
    """Taken off each token's reward: the KL, already weighted."""
    values: Float[Tensor, " tokens"] | None = None
    """The critic's value of the state before each token."""
    old: Float[Tensor, " tokens"] | None = None
    reference: Float[Tensor, " tokens"] | None = None
    """Logprobs under the reference; like `old` over the whole vocabulary, even if the draw was cut off."""
    trained: Bool[Tensor, " tokens"] | None = None
    """Whether the token is trained; the others count for rewards and returns only. None = all of scored rollouts."""
    components: Mapping[str, Float[Tensor, " rollouts"]] = field(default_factory=dict)
    """float64: the value of each component of the rewards that counts, without a KL; NaN: it abstained."""
    component_weights: Mapping[str, Float[Tensor, " rollouts"]] = field(default_factory=dict)
    """float64: their weights; the weighted sum of the values is the reward, token scores included."""
    columns: tuple[Mapping[str, Any], ...] = ()
    """[groups] The other columns of each prompt's row in the data, such as a difficulty: JSON values.

    Empty, or of rows without any, where the signals are made up: by a test, and at the start to check a function of
    your own. Read them with `get` and a default.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How good each token was."""

    advantages: Float[Tensor, " tokens"]
    returns: Float[Tensor, " tokens"] | None = None
    """What the critic is to learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Two pure functions with their hyper-parameters bound."""

    estimate: Callable[[Signals], Estimate]
    policy_loss: Callable[[PolicyTokens], PolicyLoss]
