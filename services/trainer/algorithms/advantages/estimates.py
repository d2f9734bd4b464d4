"""From the signals of a whole step to one advantage a token: each function one kind of advantage. float64.

Where tokens are scored beside the rollout (process rewards), estimators that discount rewards along the tokens
(`return`, `gae`, `k_step`, `monte_carlo`) get them as rewards at their tokens. To those that compare whole rollouts
(`group`, `mean_baseline`, `rloo`, `opo`, `remax`, `online_dpo`) a rollout's reward is its own plus the sum of them.
`group_process` compares the steps of a group's rollouts with each other: there a token without a score is no step, to
all others it earned 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.advantages.returns import (
    discounted_returns,
    gae,
    k_step_advantages,
    length_adaptive_lambda,
    place_outcome,
)
from headrace.services.trainer.algorithms.advantages.rollouts import (
    group_relative_advantages,
    mean_baseline_advantages,
    opo_advantages,
    process_advantages,
    remax_advantages,
    rloo_advantages,
)
from headrace.services.trainer.algorithms.advantages.whitening import whiten
from headrace.services.trainer.algorithms.algorithm import Estimate, Signals
from headrace.services.trainer.algorithms.losses.preference import online_pair_advantages
from headrace.services.trainer.algorithms.segments import segment_sum

_OfGroup = Callable[[Tensor, Tensor], Tensor]
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


def group(signals: Signals, *, normalize_std: bool, std_eps: float) -> Estimate:
    """GRPO's advantages; without the std Dr. GRPO's."""
    return _by_group(
        signals, lambda rewards, _: group_relative_advantages(rewards, normalize_std=normalize_std, eps=std_eps)
    )


def group_process(signals: Signals, *, normalize_std: bool, std_eps: float) -> Estimate:
    """GRPO's process supervision beside its outcome supervision: see `process_advantages`.

    The advantage of a token is that of its rollout's outcome and of all steps that end at it or later.
    """
    outcome = _by_group(
        signals,
        lambda rewards, _: group_relative_advantages(rewards, normalize_std=normalize_std, eps=std_eps),
        of_outcome=True,
    )
    if signals.token_scores is None:
        return outcome
    sizes = list(signals.group_sizes)
    lengths = torch.split(signals.lengths, sizes)
    scores = torch.split(signals.token_scores, [int(own.sum()) for own in lengths])
    steps = torch.cat([process_advantages(own, normalize_std=normalize_std, eps=std_eps) for own in scores])
    return Estimate(advantages=outcome.advantages + discounted_returns(steps, signals.lengths, gamma=1.0))


def mean_baseline(signals: Signals) -> Estimate:
    """REINFORCE++-baseline's advantages, before whitening."""
    return _by_group(signals, lambda rewards, _: mean_baseline_advantages(rewards))


def rloo(signals: Signals) -> Estimate:
    """RLOO: reward minus the mean of the other rollouts of the group."""
    return _by_group(signals, lambda rewards, _: rloo_advantages(rewards))


def opo(signals: Signals) -> Estimate:
    """OPO: reward minus the length-weighted mean of the group."""
    return _by_group(signals, opo_advantages)


def remax(signals: Signals) -> Estimate:
    """ReMax: reward minus that of the greedy rollout of the group."""
    assert signals.baselines is not None
    baselines = iter(signals.baselines)
    return _by_group(signals, lambda rewards, _: remax_advantages(rewards, float(next(baselines))))


def online_dpo(signals: Signals, *, beta: float) -> Estimate:
    """DPO's gradient on the best and the worst rollout of each group.

    Multiplied by the mean group size, so that a mean over rollouts (seq-mean-token-sum) is the mean over groups.
    """
    assert signals.old is not None and signals.reference is not None
    sums = [segment_sum(logprobs.double(), signals.lengths) for logprobs in (signals.old, signals.reference)]
    policy, reference = (iter(torch.split(total, list(signals.group_sizes))) for total in sums)
    mean_size = len(signals.rewards) / len(signals.group_sizes)

    def of_group(rewards: Tensor, _: Tensor) -> Tensor:
        return online_pair_advantages(rewards, next(policy), next(reference), beta=beta) * mean_size

    return _by_group(signals, of_group)


def discounted(signals: Signals, *, gamma: float) -> Estimate:
    """Discounted return to go, without a baseline."""
    return Estimate(advantages=monte_carlo_returns(signals, gamma=gamma))


def generalized(
    signals: Signals, *, gamma: float, lam: float, lam_critic: float, lam_alpha: float, bootstrap_truncated: bool
) -> Estimate:
    """GAE, with a lambda of its own for the critic's returns and a length-adaptive one for the policy (VAPO)."""
    rewards, values, after = _for_critic(signals, bootstrap_truncated)
    of_policy = (
        length_adaptive_lambda(signals.lengths, alpha=lam_alpha).double()
        if lam_alpha
        else torch.full_like(signals.rewards, lam)
    )
    advantages, returns = gae(rewards, values, signals.lengths, gamma=gamma, lam=of_policy, bootstrap=after)
    if lam_critic >= 0:
        of_critic = torch.full_like(signals.rewards, lam_critic)
        _, returns = gae(rewards, values, signals.lengths, gamma=gamma, lam=of_critic, bootstrap=after)
    return Estimate(advantages=advantages, returns=returns)


def k_step(signals: Signals, *, gamma: float, k_steps: int, bootstrap_truncated: bool) -> Estimate:
    """K rewards and then the value; k = 1 is one-step TD."""
    rewards, values, after = _for_critic(signals, bootstrap_truncated)
    advantages = k_step_advantages(rewards, values, signals.lengths, gamma=gamma, k=k_steps, bootstrap=after)
    return Estimate(advantages=advantages, returns=advantages + values)


def monte_carlo(signals: Signals, *, gamma: float) -> Estimate:
    """The Monte-Carlo return minus the value."""
    rewards, values, _ = _for_critic(signals, False)
    returns = discounted_returns(rewards, signals.lengths, gamma=gamma)
    return Estimate(advantages=returns - values, returns=returns)


def whitened(estimate: Estimate, signals: Signals) -> Estimate:
    """Whitens over all tokens of the step; those of rollouts that were not scored are left out and stay 0.

    A single token has no variance: it is left as it is.
    """
    scored = signals.rewards.isfinite().repeat_interleave(signals.lengths)
    if int(scored.sum()) < 2:
        return estimate
    return Estimate(advantages=whiten(estimate.advantages, scored) * scored, returns=estimate.returns)


def _by_group(signals: Signals, of_group: _OfGroup, *, of_outcome: bool = False) -> Estimate:
    """Applies `of_group` to each group; `of_outcome`: to rewards without token scores."""
    sizes = list(signals.group_sizes)
    whole = signals.rewards if of_outcome else whole_rewards(signals)
    pairs = zip(torch.split(whole, sizes), torch.split(signals.lengths, sizes), strict=True)
    each = torch.cat([of_group(rewards, lengths) for rewards, lengths in pairs])
    return Estimate(advantages=each.repeat_interleave(signals.lengths))


def _for_critic(signals: Signals, bootstrap_truncated: bool) -> tuple[Tensor, Tensor, Tensor]:
    assert signals.values is not None
    values = signals.values.double()
    after = torch.zeros_like(signals.rewards)
    some = signals.lengths > 0
    if bootstrap_truncated:
        last = values[signals.lengths.cumsum(0)[some] - 1]
        after[some] = torch.where(signals.truncated[some], last, 0.0)
    return token_rewards(signals), values, after
