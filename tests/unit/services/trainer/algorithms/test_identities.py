"""What must be the same thing under two names, through the parts as an algorithm joins them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.aggregation import StepCounts, aggregate
from headrace.services.trainer.algorithms.names import AGGREGATIONS
from headrace.services.trainer.algorithms.parts import POLICY_LOSSES
from headrace.services.trainer.algorithms.segments import spread
from tests.unit.services.trainer.algorithms.flat_rollouts import TRAINED, flat, policy_loss


def counts_of(lengths):
    return StepCounts(tokens=max(int(lengths.sum()), 1), rollouts=max(int((lengths > 0).sum()), 1), norm_length=8)


def gradient(loss, name, old, advantages, lengths, logprobs):
    result = policy_loss(loss, logprobs, old, advantages, lengths)
    whole = aggregate(result.per_token, lengths, mode=name, counts=counts_of(lengths))
    return torch.autograd.grad(whole, logprobs)[0]


@pytest.mark.parametrize("loss", POLICY_LOSSES)
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
    dapo = policy_loss("ppo_clip", logprobs, old, advantages, clip_low=0.2, clip_high=0.2)
    ours = aggregate(dapo.per_token, lengths, mode="seq-mean-token-mean", counts=counts)
    grpo = 0.0
    for p, q, a in zip(*(x.split(lengths.tolist()) for x in (logprobs, old, advantages)), strict=True):
        ratio = (p - q).exp()
        if len(ratio):
            grpo -= torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean() / counts.rollouts
    assert float(ours) == pytest.approx(float(grpo), abs=1e-10)


@given(rollouts=TRAINED)
def test_dppo_without_bounds_and_cispo_within_them_are_importance_sampling(rollouts):
    logprobs, old, advantages, _ = flat(rollouts, 3)
    logprobs.requires_grad_()
    sampled = -(logprobs - old).exp() * advantages
    for result in (
        policy_loss("dppo", logprobs, old, advantages, bound_low=1.0, bound_high=1.0, divergence_coef=0.0),
        policy_loss("cispo", logprobs, old, advantages, clip_low=1.0, clip_high=1e6),
        policy_loss("ppo_kl", logprobs, old, advantages, penalty_coef=0.0),
    ):
        ours, theirs = (
            torch.autograd.grad(x.sum(), logprobs, retain_graph=True)[0] for x in (result.per_token, sampled)
        )
        torch.testing.assert_close(ours, theirs)
        assert not result.clipped.any()
