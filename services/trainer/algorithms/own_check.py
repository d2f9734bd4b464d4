"""Calls a user's function on a made batch of the run's shapes. Pure.

The batch has rollouts of unequal length, one group of equal rewards, and a rollout without trained tokens. Where a run
has one group a batch, its rewards are equal in a second call.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import Estimate, PolicyLoss, PolicyTokens, Signals
from headrace.services.trainer.algorithms.own import check_finite
from headrace.services.trainer.algorithms.parts import Need
from headrace.wire.errors import ConfigError

_MOST_TOKENS = 1 << 20
"""A made batch has at most so many: a run's own may be too large for this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """The shape of a run's batches."""

    groups: int
    group_size: int
    longest: int
    """Most tokens of a rollout."""


def check_estimator(
    target: str, estimate: Callable[[Signals], Estimate], needs: Need, shape: BatchShape, *, penalties: bool
) -> None:
    """Raises ConfigError unless the estimator gives each token a finite advantage, and some one other than 0."""
    signals = made_signals(needs, shape, penalties=penalties)
    made = estimate(signals)
    if shape.groups == 1:
        # The batch has no group of equal rewards beside others: it is one, once.
        estimate(replace(signals, rewards=torch.ones_like(signals.rewards)))
    differ = bool((signals.rewards != signals.rewards[0]).any())
    if differ and not bool(made.advantages.any()):
        why = "" if shape.group_size > 1 else " (batch.group_size is 1: a baseline of the group leaves nothing)"
        raise ConfigError(
            f"{target}: Estimate.advantages are all 0 on rewards that differ{why}: nothing would be trained"
        )


def check_loss(target: str, policy_loss: Callable[[PolicyTokens], PolicyLoss], shape: BatchShape) -> None:
    """Raises ConfigError unless the loss is finite and gives a finite gradient; also called without any token."""
    lengths = made_lengths(shape)
    _check_gradient(target, policy_loss, made_tokens(lengths))
    _check_gradient(target, policy_loss, made_tokens(torch.zeros_like(lengths)))


def _check_gradient(target: str, policy_loss: Callable[[PolicyTokens], PolicyLoss], tokens: PolicyTokens) -> None:
    made = policy_loss(tokens)
    check_finite(target, "PolicyLoss.per_token", made.per_token.detach())
    check_finite(target, "PolicyLoss.kl", made.kl.detach())
    if made.clipped.dtype != torch.bool:
        raise ConfigError(f"{target}: PolicyLoss.clipped has dtype {made.clipped.dtype}, must be torch.bool")
    if not made.per_token.requires_grad:
        raise ConfigError(f"{target}: no gradient flows from PolicyLoss.per_token to tokens.logprobs: is it detached?")
    (gradient,) = torch.autograd.grad(made.per_token.sum(), tokens.logprobs, allow_unused=True, materialize_grads=True)
    if len(gradient) and not bool(gradient.any()):
        raise ConfigError(f"{target}: the gradient of PolicyLoss.per_token to tokens.logprobs is 0 at every token")
    check_finite(target, "the gradient of PolicyLoss.per_token to tokens.logprobs", gradient)


def made_lengths(shape: BatchShape) -> Tensor:
    """int64 [rollouts]: unequal, up to the longest; the last rollout has no trained token."""
    count = shape.groups * shape.group_size
    longest = max(min(shape.longest, _MOST_TOKENS // max(count, 1)), 1)
    lengths = 1 + (torch.arange(count) * 7) % longest
    if count > 1:
        lengths[0], lengths[-1] = longest, 0
    return lengths


def made_signals(needs: Need, shape: BatchShape, *, penalties: bool) -> Signals:
    """A batch as an estimator gets it: group 0 has equal rewards where there are others."""
    lengths = made_lengths(shape)
    draw = torch.Generator().manual_seed(0)
    rewards = torch.randn(len(lengths), generator=draw, dtype=torch.float64)
    if shape.groups > 1:
        rewards[: shape.group_size] = 1.0
    tokens = int(lengths.sum())

    def numbers(count: int = tokens) -> Tensor:
        return -torch.rand(count, generator=draw)

    return Signals(
        rewards=rewards,
        group_sizes=(shape.group_size,) * shape.groups,
        baselines=numbers(shape.groups).double() if Need.GREEDY in needs else None,
        lengths=lengths,
        truncated=lengths == lengths.max(),
        penalties=numbers() if penalties else None,
        values=numbers() if Need.CRITIC in needs else None,
        old=numbers() if Need.OLD_LOGPROBS in needs else None,
        reference=numbers() if Need.REFERENCE in needs else None,
        components={"made": rewards},
        component_weights={"made": torch.ones_like(rewards)},
        columns=({},) * shape.groups,
    )


def made_tokens(lengths: Tensor) -> PolicyTokens:
    """A micro-batch as a loss gets it; the policy has moved a little from `old`."""
    draw = torch.Generator().manual_seed(0)
    count = int(lengths.sum())
    old = -torch.rand(count, generator=draw)
    moved = old + 0.01 * torch.randn(count, generator=draw)
    return PolicyTokens(
        logprobs=moved.requires_grad_(),
        old=old,
        advantages=torch.randn(count, generator=draw),
        lengths=lengths,
    )
