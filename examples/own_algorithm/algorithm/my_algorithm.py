"""An advantage and a policy loss of one's own: what `run.toml` beside this folder trains with."""

import torch

from headrace.services.trainer.algorithms.algorithm import Estimate, PolicyLoss, PolicyTokens, Signals


def median_baseline(signals: Signals) -> Estimate:
    """Each reward less the median of its group, spread over the rollout's tokens."""
    groups = torch.split(signals.rewards, list(signals.group_sizes))
    of_rollouts = torch.cat([rewards - rewards.nanmedian() for rewards in groups]).nan_to_num(0.0)
    return Estimate(advantages=of_rollouts.repeat_interleave(signals.lengths))


def smooth_clip(tokens: PolicyTokens) -> PolicyLoss:
    """-A tanh(log r): near the old policy REINFORCE's gradient, which fades as the ratio moves."""
    log_ratio = tokens.logprobs - tokens.old
    return PolicyLoss(
        per_token=-tokens.advantages * log_ratio.tanh(),
        clipped=log_ratio.detach().abs() > 1,
        kl=-log_ratio.detach(),
    )
