"""What must be the same thing under two names, through the parts as an algorithm joins them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.advantages.rollouts import group_relative_advantages, rloo_advantages
from headrace.services.trainer.algorithms.aggregation import AGGREGATIONS, StepCounts, aggregate
from headrace.services.trainer.algorithms.losses.policy import (
    clipped_policy_loss,
    kl_penalty_policy_loss,
    policy_gradient_loss,
)
from headrace.services.trainer.algorithms.losses.sequence import gspo_loss, gspo_token_loss
from headrace.services.trainer.algorithms.losses.token import cispo_loss, dppo_loss, sapo_loss
from headrace.services.trainer.algorithms.segments import spread
from tests.unit.services.trainer.algorithms.flat_rollouts import TRAINED, flat

LOSSES = {
    "policy_gradient": lambda p, q, a, _: policy_gradient_loss(p, q, a),
    "ppo": lambda p, q, a, _: clipped_policy_loss(p, q, a, clip_low=0.2, clip_high=0.2, dual_clip=3.0),
    "ppo_kl": lambda p, q, a, _: kl_penalty_policy_loss(p, q, a, coef=0.1),
    "dapo": lambda p, q, a, _: clipped_policy_loss(p, q, a, clip_low=0.2, clip_high=0.28),
    "gspo": lambda p, q, a, n: gspo_loss(p, q, a, n, clip_low=3e-4, clip_high=4e-4),
    "gspo_token": lambda p, q, a, n: gspo_token_loss(p, q, a, n, clip_low=3e-4, clip_high=4e-4),
    "sapo": lambda p, q, a, _: sapo_loss(p, q, a, tau_positive=1.0, tau_negative=1.05),
    "cispo": lambda p, q, a, _: cispo_loss(p, q, a, clip_low=1.0, clip_high=4.0),
    "dppo": lambda p, q, a, _: dppo_loss(p, q, a, bound_low=0.2, bound_high=0.2, kl_coef=1e-3),
}


def counts_of(lengths):
    return StepCounts(tokens=max(int(lengths.sum()), 1), rollouts=max(int((lengths > 0).sum()), 1), norm_length=8)


def gradient(loss, name, old, advantages, lengths, logprobs):
    result = LOSSES[loss](logprobs, old, advantages, lengths)
    whole = aggregate(result.per_token, lengths, mode=name, counts=counts_of(lengths))
    return torch.autograd.grad(whole, logprobs)[0]


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=25)
@given(rollouts=TRAINED, aggregation=st.sampled_from(AGGREGATIONS))
def test_on_policy_every_loss_has_the_gradient_of_reinforce(loss, rollouts, aggregation):
    logprobs, _, _, lengths = flat(rollouts, 3)
    logprobs.requires_grad_()
    outcomes = torch.linspace(-1, 2, len(lengths), dtype=torch.float64)
    advantages = spread(outcomes, lengths)
    old = logprobs.detach().clone()
    ours = gradient(loss, aggregation, old, advantages, lengths, logprobs)
    reinforce = aggregate(-advantages * logprobs, lengths, mode=aggregation, counts=counts_of(lengths))
    torch.testing.assert_close(ours, torch.autograd.grad(reinforce, logprobs)[0])


@given(rollouts=TRAINED)
def test_grpo_is_dapo_with_equal_clips_and_a_mean_by_sequence(rollouts):
    logprobs, old, advantages, lengths = flat(rollouts, 3)
    counts = counts_of(lengths)
    dapo = clipped_policy_loss(logprobs, old, advantages, clip_low=0.2, clip_high=0.2)
    ours = aggregate(dapo.per_token, lengths, mode="seq-mean-token-mean", counts=counts)
    grpo = 0.0
    for p, q, a in zip(*(x.split(lengths.tolist()) for x in (logprobs, old, advantages)), strict=True):
        ratio = (p - q).exp()
        if len(ratio):
            grpo -= torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean() / counts.rollouts
    assert float(ours) == pytest.approx(float(grpo), abs=1e-10)


@given(rollouts=TRAINED)
def test_dr_grpo_with_a_leave_one_out_baseline_is_grpo_without_std_times_g_over_g_minus_one(rollouts):
    rewards = torch.tensor([float(len(rollout)) for rollout in [*rollouts, []]], dtype=torch.float64)
    group = len(rewards)
    relative = group_relative_advantages(rewards, normalize_std=False, eps=1e-6)
    torch.testing.assert_close(rloo_advantages(rewards), relative * group / (group - 1))


@given(rollouts=TRAINED)
def test_dppo_without_bounds_and_cispo_within_them_are_importance_sampling(rollouts):
    logprobs, old, advantages, _ = flat(rollouts, 3)
    logprobs.requires_grad_()
    sampled = -(logprobs - old).exp() * advantages
    for result in (
        dppo_loss(logprobs, old, advantages, bound_low=1.0, bound_high=1.0, kl_coef=0.0),
        cispo_loss(logprobs, old, advantages, clip_low=1.0, clip_high=1e6),
        kl_penalty_policy_loss(logprobs, old, advantages, coef=0.0),
    ):
        ours, theirs = (
            torch.autograd.grad(x.sum(), logprobs, retain_graph=True)[0] for x in (result.per_token, sampled)
        )
        torch.testing.assert_close(ours, theirs)
        assert not result.clipped.any()
