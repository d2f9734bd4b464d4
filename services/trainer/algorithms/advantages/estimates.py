"""What estimators of advantages share: rewards of tokens and of rollouts, groups, and whitening. float64.

Where tokens are scored beside the rollout (process rewards), estimators that discount rewards along the tokens
(`return`, `gae`, `k_step`, `monte_carlo`) get them as rewards at their tokens. To those that compare whole rollouts
(`group`, `mean_baseline`, `rloo`, `opo`, `remax`, `online_dpo`) a rollout's reward is its own plus the sum of them.
To `gdpo` that sum is a component. `group_process` compares the steps of a group's rollouts: a token without a score is
not a step there; for all others it earned 0.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import Estimate, Signals
from headrace.services.trainer.algorithms.segments import segment_sum

OfScored = Callable[[Tensor, Tensor], Tensor]
"""From the rewards of a group's scored members, and their places in the batch, to their advantages."""


def whole_rewards(signals: Signals) -> Tensor:
    """float64 [rollouts]: what each rollout earned in all."""
    rewards = outcomes(signals)
    if signals.token_scores is None:
        return rewards
    return rewards + segment_sum(signals.token_scores.nan_to_num(0.0), signals.lengths)


def outcomes(signals: Signals) -> Tensor:
    """float64 [rollouts]: the rewards without token scores, each less the sum of its tokens' penalties.

    The KL then comes off before any baseline (TRL's RLOO, verl's `use_kl_in_reward`); the original GRPO has it in the
    loss (arXiv 2402.03300, 4.1.1).
    """
    if signals.penalties is None:
        return signals.rewards
    return signals.rewards - segment_sum(signals.penalties.double(), signals.lengths)


def by_group(signals: Signals, of_scored: OfScored) -> Estimate:
    """Applies `of_scored` to the whole rewards of each group, and repeats a rollout's result for each of its tokens."""
    each = among_scored(whole_rewards(signals), signals.group_sizes, of_scored)
    return Estimate(advantages=each.repeat_interleave(signals.lengths))


def among_scored(rewards: Tensor, sizes: Sequence[int], of_scored: OfScored) -> Tensor:
    """Applies `of_scored` to each consecutive group's values that are not NaN; 0 elsewhere, and where it is alone."""
    made = torch.zeros_like(rewards)
    for members in torch.split(torch.arange(len(rewards)), list(sizes)):
        scored = members[~rewards[members].isnan()]
        if len(scored) >= 2:
            made[scored] = of_scored(rewards[scored], scored)
    return made


def whitened(estimate: Estimate, signals: Signals) -> Estimate:
    """(A - mean) / sqrt(var + 1e-8), mean and var over the step's trained tokens; 0 in rollouts without a score.

    var has Bessel's correction, as in verl (OpenRLHF's is the biased one). A single token has no variance: it is left
    as it is.
    """
    scored = signals.rewards.isfinite().repeat_interleave(signals.lengths)
    trained = scored if signals.trained is None else scored & signals.trained
    if int(trained.sum()) < 2:
        return estimate
    var, mean = torch.var_mean(estimate.advantages[trained], correction=1)
    made = (estimate.advantages - mean) * torch.rsqrt(var + 1e-8)
    return Estimate(advantages=made * scored, returns=estimate.returns)
