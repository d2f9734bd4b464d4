import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.services.trainer.algorithms.flat_rollouts import TRAINED, check_loss, policy_loss

UP, DOWN = math.log(2.0), math.log(0.5)


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def loss(logprobs, old, advantages, low=0.2, high=0.28, **caps):
    return policy_loss("ppo_clip", logprobs, old, advantages, clip_low=low, clip_high=high, **caps)


def slow_clip(logprobs, old, advantages, clip_low, clip_high, dual_clip=0.0, ratio_cap=0.0):
    out = []
    for new, before, advantage in zip(logprobs, old, advantages, strict=True):
        ratio = (new - before).exp()
        bounded = f64(max(1 - clip_low, min(1 + clip_high, ratio.item())))
        inside = 1 - clip_low <= ratio.item() <= 1 + clip_high
        if ratio_cap and ratio > ratio_cap:
            ratio = f64(ratio_cap)
        free, clip = -ratio * advantage, -(ratio if inside else bounded) * advantage
        worst = free if free >= clip else clip
        if dual_clip and advantage < 0 and worst > -dual_clip * advantage:
            worst = f64(-dual_clip * advantage)
        out.append(worst + 0 * new)
    return out


def test_four_corners_by_hand():
    result = loss([UP, UP, DOWN, DOWN], [0.0] * 4, [1.0, -1.0, 1.0, -1.0])
    # a good token already twice as likely is clipped at 1.28; a bad one is not, and the other way round at 0.8
    torch.testing.assert_close(result.per_token, f64([-1.28, 2.0, -0.5, 0.8]))
    assert result.clipped.tolist() == [True, False, False, True]
    torch.testing.assert_close(result.kl, f64([-UP, -UP, -DOWN, -DOWN]))


def test_both_caps_by_hand_bound_only_the_bad_token_that_got_likelier():
    ten = math.log(10.0)
    for caps, expected in (({"dual_clip": 3.0}, 6.0), ({"ratio_cap": 4.0}, 8.0), ({}, 20.0)):
        result = loss([ten, ten, -ten], [0.0] * 3, [1.0, -2.0, -2.0], **caps)
        torch.testing.assert_close(result.per_token, f64([-1.28, expected, 1.6]))
        assert result.clipped.tolist() == [True, bool(caps), True]


@given(
    rollouts=TRAINED,
    clip_low=st.floats(0.01, 0.5),
    clip_high=st.floats(0.01, 0.5),
    dual_clip=st.sampled_from([0.0, 1.1, 3.0]),
    ratio_cap=st.sampled_from([0.0, 1.6, 4.0]),
)
def test_the_clip_equals_a_slow_obvious_version_with_its_gradient(rollouts, **values):
    check_loss("ppo_clip", slow_clip, rollouts, **values)


@given(rollouts=TRAINED, coef=st.floats(0, 2))
def test_the_kl_penalty_equals_a_slow_obvious_version_with_its_gradient(rollouts, coef):
    def slow(logprobs, old, advantages, penalty_coef):
        pairs = zip(logprobs, old, advantages, strict=True)
        return [-(p - q).exp() * a + penalty_coef * ((p - q).exp() - 1 - (p - q)) for p, q, a in pairs]

    check_loss("ppo_kl", slow, rollouts, penalty_coef=coef)


@given(rollouts=TRAINED)
def test_the_policy_gradient_is_minus_the_advantage_on_or_off_policy(rollouts):
    def slow(logprobs, _old, advantages):
        return [-a * p for p, a in zip(logprobs, advantages, strict=True)]

    result = check_loss("policy_gradient", slow, rollouts)
    assert not result.clipped.any()


def test_the_penalty_has_the_gradient_of_the_kl_to_the_old_policy_in_expectation():
    logits = f64([1.0, 0.0, 2.0]).requires_grad_()
    old = torch.log_softmax(f64([0.5, 1.0, 0.0]), 0)
    policy = torch.log_softmax(logits, 0)
    exact = (old.exp() * (old - policy)).sum()
    sampled = (old.exp() * policy_loss("ppo_kl", policy, old, torch.zeros_like(old), penalty_coef=1.0).per_token).sum()
    torch.testing.assert_close(sampled, exact)
    ours, theirs = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (sampled, exact))
    torch.testing.assert_close(ours, theirs)


def test_clipped_and_capped_tokens_have_no_gradient_and_a_huge_ratio_stays_finite():
    logprobs = f64([-1.0, -1.0, -1.0]).requires_grad_()
    result = loss(logprobs, [-2.0, -900.0, -3.0], [1.0, -1.0, -1.0], high=0.2, dual_clip=3.0)
    result.per_token.sum().backward()
    assert logprobs.grad.tolist() == [0.0, 0.0, 0.0]
    assert result.clipped.all()
    assert torch.isfinite(loss([-1.0], [-900.0], [-1.0]).per_token).all()


def test_no_gradient_reaches_the_anchor_or_the_advantages():
    old, advantages = f64([-1.5]).requires_grad_(), f64([1.0]).requires_grad_()
    result = loss(f64([-1.4]).requires_grad_(), old, advantages)
    result.per_token.sum().backward()
    assert old.grad is None and advantages.grad is None
