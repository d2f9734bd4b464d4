"""Policy losses whose ratio is the whole rollout's. Axes: tokens = trained tokens, rollouts = their owners.

Sources: GSPO, arXiv 2507.18071, and GMPO, arXiv 2507.20673. GSPO's clip range is 3e-4 / 4e-4: the mean log-ratio of a
rollout is orders of magnitude smaller than a token's, so a PPO-sized 0.2 never clips (verl, TRL and OpenRLHF all leave
0.2 as the default). Meant for the aggregation `seq-mean-token-mean`.
"""

import torch
from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import PolicyLoss, PolicyTokens
from headrace.services.trainer.algorithms.losses.policy import LOG_RATIO_LIMIT, log_ratios, loss_of
from headrace.services.trainer.algorithms.parts import ClipRange
from headrace.services.trainer.algorithms.segments import segment_mean, spread


@jaxtyped(typechecker=beartype)
def sequence_ratios(
    logprobs: Float[Tensor, " tokens"], old: Float[Tensor, " tokens"], lengths: Int[Tensor, " rollouts"]
) -> Float[Tensor, " rollouts"]:
    """The exp of each rollout's mean log-ratio (GSPO's s); 1 for an empty one."""
    return segment_mean(logprobs - old.detach(), lengths).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def gspo(tokens: PolicyTokens, options: ClipRange) -> PolicyLoss:
    """`-min(s A, clip(s) A)`, `s = exp(mean_t log r_t)` of the rollout

    Note: the paper's clip is a thousandth of PPO's; verl, TRL and OpenRLHF leave 0.2, which never clips. Refused here

    The rollout's loss at each of its tokens; A is the mean of its tokens' advantages.
    """
    ratios = sequence_ratios(tokens.logprobs, tokens.old, tokens.lengths)
    means = segment_mean(tokens.advantages.detach(), tokens.lengths)
    free = -ratios * means
    bounded = -ratios.clamp(1 - options.clip_low, 1 + options.clip_high) * means
    per_token = spread(torch.maximum(free, bounded), tokens.lengths)
    return loss_of(tokens, per_token, spread(bounded > free, tokens.lengths))


def gspo_token(tokens: PolicyTokens, options: ClipRange) -> PolicyLoss:
    """The same with `s_t = sg[s] exp(lp - sg[lp])`

    Note: what verl runs as GSPO

    Equation 13: the rollout's ratio in value, each token's own in gradient, so advantages may differ. Where they do
    not, value and gradient are GSPO's.
    """
    advantages, logprobs = tokens.advantages.detach(), tokens.logprobs
    of_rollouts = sequence_ratios(logprobs.detach(), tokens.old, tokens.lengths)
    ratios = spread(of_rollouts, tokens.lengths) * (logprobs - logprobs.detach()).exp()
    free = -ratios * advantages
    bounded = -ratios.clamp(1 - options.clip_low, 1 + options.clip_high) * advantages
    return loss_of(tokens, torch.maximum(free, bounded), bounded > free)


def gmpo(tokens: PolicyTokens, options: ClipRange) -> PolicyLoss:
    """`-A exp(mean_t c_t)`, `c_t = min(log r_t, clip_high)` where `A > 0`, else `max(log r_t, -clip_low)`

    Note: bounds of the log-ratio, the paper's 0.4 (as TRL; verl's `geo_mean` leaves 0.2); clipped by token, GSPO clips
    the mean

    The rollout's loss at each of its tokens; A is the mean of its tokens' advantages, and its sign is that of all.
    """
    log_ratio = log_ratios(tokens.logprobs, tokens.old)
    means = segment_mean(tokens.advantages.detach(), tokens.lengths)
    rising = spread(means > 0, tokens.lengths)
    held = torch.where(rising, log_ratio.clamp(max=options.clip_high), log_ratio.clamp(min=-options.clip_low))
    per_rollout = -means * segment_mean(held, tokens.lengths).exp()
    return loss_of(tokens, spread(per_rollout, tokens.lengths), held != log_ratio)
