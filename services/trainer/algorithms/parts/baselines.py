"""Advantages of whole rollouts: a reward less a baseline, made of the group or of a greedy rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from headrace.services.trainer.algorithms.parts.part import (
    GREEDY,
    GROUP,
    OLD_LOGPROBS,
    REFERENCE,
    PartOptions,
    advantage,
)

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.services.trainer.algorithms.algorithm import Estimate, Signals


class NoOptions(PartOptions):
    """No key of its own."""


class Normalization(PartOptions):
    """The scale of a group's advantages."""

    normalize_std: bool = True
    """For `group` and `group_process`: divide by the group's standard deviation (off: Dr. GRPO)."""
    std_eps: float = Field(1e-6, gt=0)
    """Added to that standard deviation."""


class PreferenceStrength(PartOptions):
    """The strength of a preference."""

    beta: float = Field(0.1, gt=0)
    """For `online_dpo`: strength of the pull to the reference."""


@advantage("group", Normalization, needs=GROUP)
def group(signals: Signals, options: Normalization) -> Estimate:
    """`(R - mean_G) / (std_G + std_eps)`; `normalize_std = false` leaves the std out (Dr. GRPO)

    the std is unbiased (verl, OpenRLHF); a group with fewer than two scored rollouts has 0, verl gives its raw reward
    """
    from headrace.services.trainer.algorithms.advantages.estimates import by_group
    from headrace.services.trainer.algorithms.advantages.rollouts import group_relative_advantages

    normalize_std, eps = options.normalize_std, options.std_eps
    return by_group(
        signals, lambda rewards, _: group_relative_advantages(rewards, normalize_std=normalize_std, eps=eps)
    )


@advantage("group_process", Normalization, needs=GROUP)
def group_process(signals: Signals, options: Normalization) -> Estimate:
    """`group` of the outcome, plus the sum over later steps of `(r - mean) / (std + std_eps)`, of all steps of a group

    DeepSeekMath's process supervision (arXiv 2402.03300, 4.1.3); a step is a token that has a score, see above
    """
    from headrace.services.trainer.algorithms.advantages.estimates import by_group, later_steps
    from headrace.services.trainer.algorithms.advantages.rollouts import group_relative_advantages
    from headrace.services.trainer.algorithms.algorithm import Estimate

    normalize_std, eps = options.normalize_std, options.std_eps
    outcome = by_group(
        signals,
        lambda rewards, _: group_relative_advantages(rewards, normalize_std=normalize_std, eps=eps),
        of_outcome=True,
    )
    steps = later_steps(signals, normalize_std=normalize_std, eps=eps)
    return outcome if steps is None else Estimate(advantages=outcome.advantages + steps)


@advantage("mean_baseline", NoOptions, needs=GROUP)
def mean_baseline(signals: Signals, _options: NoOptions) -> Estimate:
    """`R - mean_G`

    REINFORCE++-baseline, with `whiten`
    """
    from headrace.services.trainer.algorithms.advantages.estimates import by_group
    from headrace.services.trainer.algorithms.advantages.rollouts import mean_baseline_advantages

    return by_group(signals, lambda rewards, _: mean_baseline_advantages(rewards))


@advantage("rloo", NoOptions, needs=GROUP)
def rloo(signals: Signals, _options: NoOptions) -> Estimate:
    """`R` minus the mean of the others = `G / (G - 1) (R - mean_G)`"""
    from headrace.services.trainer.algorithms.advantages.estimates import by_group
    from headrace.services.trainer.algorithms.advantages.rollouts import rloo_advantages

    return by_group(signals, lambda rewards, _: rloo_advantages(rewards))


@advantage("opo", NoOptions, needs=GROUP)
def opo(signals: Signals, _options: NoOptions) -> Estimate:
    """`R` minus the mean weighted by length"""
    from headrace.services.trainer.algorithms.advantages.estimates import by_group
    from headrace.services.trainer.algorithms.advantages.rollouts import opo_advantages

    return by_group(signals, opo_advantages)


@advantage("remax", NoOptions, needs=GREEDY)
def remax(signals: Signals, _options: NoOptions) -> Estimate:
    """`R` minus that of one greedy rollout of the prompt

    the greedy rollout is generated beside the group and not trained
    """
    from headrace.services.trainer.algorithms.advantages.estimates import by_group
    from headrace.services.trainer.algorithms.advantages.rollouts import remax_advantages

    assert signals.baselines is not None
    baselines = iter(signals.baselines)
    return by_group(signals, lambda rewards, _: remax_advantages(rewards, float(next(baselines))))


@advantage("online_dpo", PreferenceStrength, needs=GROUP | REFERENCE | OLD_LOGPROBS)
def online_dpo(signals: Signals, options: PreferenceStrength) -> Estimate:
    """`+-beta sigmoid(-beta Delta)` on the best and the worst of the group

    with `policy_gradient` it is DPO's exact gradient on-policy
    """
    import torch

    from headrace.services.trainer.algorithms.advantages.estimates import by_group
    from headrace.services.trainer.algorithms.losses.preference import online_pair_advantages
    from headrace.services.trainer.algorithms.segments import segment_sum

    assert signals.old is not None and signals.reference is not None
    sums = [segment_sum(logprobs.double(), signals.lengths) for logprobs in (signals.old, signals.reference)]
    policy, reference = (iter(torch.split(total, list(signals.group_sizes))) for total in sums)
    # A mean over rollouts (seq-mean-token-sum) is then the mean over groups.
    mean_size = len(signals.rewards) / len(signals.group_sizes)

    def of_group(rewards: Tensor, _: Tensor) -> Tensor:
        return online_pair_advantages(rewards, next(policy), next(reference), beta=options.beta) * mean_size

    return by_group(signals, of_group)
