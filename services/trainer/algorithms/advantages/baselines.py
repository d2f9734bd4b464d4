"""Advantages of whole rollouts: a reward less a baseline, made of the group or of a greedy rollout.

A baseline made of the group needs two scored rollouts: with fewer, all advantages of the group are 0. The first line
of each docstring, and its `Note:`, are the part's row in docs/algorithms.md.
"""

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.advantages.estimates import (
    OfScored,
    among_scored,
    by_group,
    outcomes,
    whole_rewards,
)
from headrace.services.trainer.algorithms.advantages.returns import discounted_returns
from headrace.services.trainer.algorithms.algorithm import Estimate, Signals
from headrace.services.trainer.algorithms.parts import Divisor, Normalization, PartOptions, PreferenceStrength
from headrace.services.trainer.algorithms.segments import segment_sum


def group(signals: Signals, options: Normalization) -> Estimate:
    """`(R - mean_G) / (std_G + std_eps)`; `normalize_std = false`: no std (Dr. GRPO); `batch_std`: the batch's

    Note: the std is unbiased (verl, OpenRLHF); a group with fewer than two scored rollouts has 0, verl gives its raw
    reward

    GRPO (arXiv 2402.03300, equation 3); without the std it is Dr. GRPO's (arXiv 2503.20783).
    """
    return by_group(signals, _relative(whole_rewards(signals), options))


def group_process(signals: Signals, options: Normalization) -> Estimate:
    """`group` of the outcome, plus the sum over later steps of `(r - mean) / (std + std_eps)`, of all steps of a group

    Note: DeepSeekMath's process supervision (arXiv 2402.03300, 4.1.3); a step is a token that has a score, see above
    """
    rewards = outcomes(signals)
    outcome = among_scored(rewards, signals.group_sizes, _relative(rewards, options)).repeat_interleave(signals.lengths)
    if signals.token_scores is None:
        return Estimate(advantages=outcome)
    tokens = [int(own.sum()) for own in torch.split(signals.lengths, list(signals.group_sizes))]
    steps = among_scored(signals.token_scores, tokens, _relative(signals.token_scores, options))
    return Estimate(advantages=outcome + discounted_returns(steps, signals.lengths, gamma=1.0))


def gdpo(signals: Signals, options: Divisor) -> Estimate:
    """`sum_n w_n (R_n - mean_G) / (std_G + std_eps)` of the reward's components, then whitened over the batch

    Note: TRL's `multi_objective_aggregation = "normalize_then_sum"`; where a component abstained it adds 0, and the
    others of the group are normalized without it

    GDPO, arXiv 2601.05242. Token scores (`turns`) and the overlong penalty are components of weight 1.
    """
    summed = torch.zeros_like(signals.rewards)
    for name, values in signals.components.items():
        relative = among_scored(values, signals.group_sizes, _relative(values, Normalization(std_eps=options.std_eps)))
        summed = summed + signals.component_weights[name] * relative
    # Whitened over rollouts, as the paper has it: `whiten` is over tokens.
    whole = summed.where(signals.rewards.isfinite(), torch.nan)
    each = among_scored(whole, [len(whole)], _relative(whole, Normalization(std_eps=options.std_eps)))
    return Estimate(advantages=each.repeat_interleave(signals.lengths))


def mean_baseline(signals: Signals, _options: PartOptions) -> Estimate:
    """`R - mean_G`

    Note: REINFORCE++-baseline, with `whiten`
    """
    return by_group(signals, lambda rewards, _: rewards - rewards.mean())


def rloo(signals: Signals, _options: PartOptions) -> Estimate:
    """`R` minus the mean of the others = `G / (G - 1) (R - mean_G)`

    RLOO, arXiv 2402.14740.
    """
    return by_group(signals, lambda own, _: (own - own.mean()) * (len(own) / (len(own) - 1)))


def opo(signals: Signals, _options: PartOptions) -> Estimate:
    """`R` minus the mean weighted by length

    The baseline of least variance (OPO, arXiv 2505.23585).
    """

    def of_group(rewards: Tensor, members: Tensor) -> Tensor:
        weights = signals.lengths[members].to(rewards.dtype)
        return rewards - (weights * rewards).sum() / weights.sum().clamp(min=1)

    return by_group(signals, of_group)


def remax(signals: Signals, _options: PartOptions) -> Estimate:
    """`R` minus that of one greedy rollout of the prompt

    Note: the greedy rollout is generated beside the group and not trained

    ReMax, arXiv 2310.10505; all 0 if the greedy rollout was not scored.
    """
    assert signals.baselines is not None
    baselines = signals.baselines.repeat_interleave(torch.tensor(signals.group_sizes))
    each = (whole_rewards(signals) - baselines).nan_to_num(nan=0.0)
    return Estimate(advantages=each.repeat_interleave(signals.lengths))


def online_dpo(signals: Signals, options: PreferenceStrength) -> Estimate:
    """`+-beta sigmoid(-beta Delta)` on the best and the worst of the group

    Note: with `policy_gradient` it is DPO's exact gradient on-policy

    Delta is DPO's margin of the two rollouts' summed logprobs. Of equals the first counts; a group whose rewards are
    all the same gives no pair.
    """
    assert signals.old is not None and signals.reference is not None
    policy, reference = (segment_sum(one.double(), signals.lengths) for one in (signals.old, signals.reference))
    # A mean over rollouts (seq-mean-token-sum) is then the mean over groups.
    mean_size = len(signals.rewards) / len(signals.group_sizes)

    def of_group(rewards: Tensor, members: Tensor) -> Tensor:
        made = torch.zeros_like(rewards)
        best, worst = int(rewards.argmax()), int(rewards.argmin())
        if bool(rewards[best] == rewards[worst]):
            return made
        chosen, rejected = members[best], members[worst]
        margin = (policy[chosen] - policy[rejected]) - (reference[chosen] - reference[rejected])
        pull = options.beta * torch.sigmoid(-options.beta * margin)
        made[best], made[worst] = pull, -pull
        return made * mean_size

    return by_group(signals, of_group)


def _relative(batch: Tensor, options: Normalization) -> OfScored:
    """How far a value is from its group's mean, as a multiple of the std of the group, or of `batch` (NaN: none)."""

    def of_group(own: Tensor, _: Tensor) -> Tensor:
        centered = own - own.mean()
        if not options.normalize_std:
            return centered
        spread = batch[~batch.isnan()] if options.batch_std else own
        return centered / (spread.std(correction=1) + options.std_eps)

    return of_group
