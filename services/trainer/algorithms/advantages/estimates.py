"""What estimators of advantages share: rewards of tokens and of rollouts, and groups. float64.

Where tokens are scored beside the rollout (process rewards), estimators that discount rewards along the tokens
(`return`, `gae`, `k_step`, `monte_carlo`) get them as rewards at their tokens. To those that compare whole rollouts
(`group`, `mean_baseline`, `rloo`, `opo`, `remax`, `online_dpo`) a rollout's reward is its own plus the sum of them.
`group_process` compares the steps of a group's rollouts with each other: there a token without a score is no step, to
all others it earned 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.advantages.returns import discounted_returns, place_outcome
from headrace.services.trainer.algorithms.advantages.rollouts import process_advantages
from headrace.services.trainer.algorithms.advantages.whitening import whiten
from headrace.services.trainer.algorithms.algorithm import Estimate, Signals
from headrace.services.trainer.algorithms.segments import segment_sum

OfGroup = Callable[[Tensor, Tensor], Tensor]
"""From one group's rewards and lengths to its advantages."""


def token_rewards(signals: Signals) -> Tensor:
    """float64 [tokens]: the scores of tokens, the outcome at the last of each rollout, less the penalties of each."""
    rewards = place_outcome(signals.rewards.nan_to_num(0.0), signals.lengths)
    if signals.token_scores is not None:
        rewards = rewards + signals.token_scores.nan_to_num(0.0)
    return rewards if signals.penalties is None else rewards - signals.penalties.double()


def whole_rewards(signals: Signals) -> Tensor:
    """float64 [rollouts]: what each rollout earned in all."""
    if signals.token_scores is None:
        return signals.rewards
    return signals.rewards + segment_sum(signals.token_scores.nan_to_num(0.0), signals.lengths)


def monte_carlo_returns(signals: Signals, *, gamma: float) -> Tensor:
    """float64 [tokens]: the returns that a critic is pretrained on."""
    return discounted_returns(token_rewards(signals), signals.lengths, gamma=gamma)


def later_steps(signals: Signals, *, normalize_std: bool, eps: float) -> Tensor | None:
    """float64 [tokens]: the advantages of all steps of the rollout that end at the token or later; None without steps.

    GRPO's process supervision: see `process_advantages`.
    """
    if signals.token_scores is None:
        return None
    lengths = torch.split(signals.lengths, list(signals.group_sizes))
    scores = torch.split(signals.token_scores, [int(own.sum()) for own in lengths])
    steps = torch.cat([process_advantages(own, normalize_std=normalize_std, eps=eps) for own in scores])
    return discounted_returns(steps, signals.lengths, gamma=1.0)


def whitened(estimate: Estimate, signals: Signals) -> Estimate:
    """Whitens over all tokens of the step; those of rollouts that were not scored are left out and stay 0.

    A single token has no variance: it is left as it is.
    """
    scored = signals.rewards.isfinite().repeat_interleave(signals.lengths)
    if int(scored.sum()) < 2:
        return estimate
    return Estimate(advantages=whiten(estimate.advantages, scored) * scored, returns=estimate.returns)


def by_group(signals: Signals, of_group: OfGroup, *, of_outcome: bool = False) -> Estimate:
    """Applies `of_group` to each group; `of_outcome`: to rewards without token scores."""
    sizes = list(signals.group_sizes)
    whole = signals.rewards if of_outcome else whole_rewards(signals)
    pairs = zip(torch.split(whole, sizes), torch.split(signals.lengths, sizes), strict=True)
    each = torch.cat([of_group(rewards, lengths) for rewards, lengths in pairs])
    return Estimate(advantages=each.repeat_interleave(signals.lengths))


def for_critic(signals: Signals, bootstrap_truncated: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards and values of the tokens, and the value behind each rollout's last; all float64."""
    assert signals.values is not None
    values = signals.values.double()
    after = torch.zeros_like(signals.rewards)
    some = signals.lengths > 0
    if bootstrap_truncated:
        last = values[signals.lengths.cumsum(0)[some] - 1]
        after[some] = torch.where(signals.truncated[some], last, 0.0)
    return token_rewards(signals), values, after
