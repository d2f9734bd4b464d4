import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.services.trainer.algorithms.flat_rollouts import TRAINED, check_loss, policy_loss


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def slow(of_token):
    def of_rollout(logprobs, old, advantages, **values):
        return [of_token(p, q, a, **values) for p, q, a in zip(logprobs, old, advantages, strict=True)]

    return of_rollout


def slow_sapo(p, q, a, tau_positive, tau_negative):
    tau = tau_positive if a > 0 else tau_negative
    return -4 / tau / (1 + (-tau * ((p - q).exp() - 1)).exp()) * a


def slow_cispo(p, q, a, clip_low, clip_high):
    return -max(1 - clip_low, min(1 + clip_high, math.exp(p.item() - q))) * a * p


def slow_dppo(p, q, a, bound_low, bound_high, divergence_coef):
    moved = math.exp(p.item()) - math.exp(q)
    left_out = moved > bound_high if a > 0 else moved < -bound_low and a < 0
    return (0 if left_out else -a * (p - q).exp()) + divergence_coef * (p - q) ** 2


def slow_ipo_mask(p, q, a, bound_low, bound_high, divergence_coef):
    left_out = not -bound_low <= math.exp(p.item()) - math.exp(q) <= bound_high
    return (0 if left_out else -a * (p - q).exp()) + divergence_coef * (p - q) ** 2


@given(rollouts=TRAINED, tau_positive=st.floats(0.1, 3), tau_negative=st.floats(0.1, 3))
def test_sapo_equals_a_slow_obvious_version_with_its_gradient(rollouts, **values):
    assert not check_loss("sapo", slow(slow_sapo), rollouts, **values).clipped.any()


@given(rollouts=TRAINED, clip_low=st.floats(0.1, 1), clip_high=st.floats(0.1, 5))
def test_cispo_equals_a_slow_obvious_version_with_its_gradient(rollouts, **values):
    check_loss("cispo", slow(slow_cispo), rollouts, **values)


@pytest.mark.parametrize(("name", "of_token"), [("dppo", slow_dppo), ("ipo_mask", slow_ipo_mask)])
@given(rollouts=TRAINED, bound_low=st.floats(0.05, 1), bound_high=st.floats(0.05, 1), divergence_coef=st.floats(0, 0.1))
def test_a_masked_loss_equals_a_slow_obvious_version_with_its_gradient(name, of_token, rollouts, **values):
    check_loss(name, slow(of_token), rollouts, **values)


@pytest.mark.parametrize(
    ("tau", "ratio", "slope"),
    [
        (1.0, 0.5, 0.940),
        (1.0, 2.0, 0.786),
        (1.0, 3.0, 0.420),
        (1.05, 0.5, 0.934),
        (1.05, 2.0, 0.768),
        (1.05, 3.0, 0.389),
    ],
)
def test_sapos_gate_has_the_known_slopes(tau, ratio, slope):
    logprobs = f64([math.log(ratio)]).requires_grad_()
    policy_loss("sapo", logprobs, [0.0], [1.0], tau_positive=tau, tau_negative=9.0).per_token.sum().backward()
    assert -float(logprobs.grad[0]) / ratio == pytest.approx(slope, abs=5e-4)


def test_sapos_slope_is_one_at_ratio_one_and_its_value_is_two_over_tau():
    logprobs = f64([-1.0, -2.0]).requires_grad_()
    advantages = f64([1.5, -0.5])
    result = policy_loss("sapo", logprobs, logprobs.detach(), advantages, tau_positive=1.0, tau_negative=1.05)
    torch.testing.assert_close(result.per_token, f64([-3.0, 1.0 / 1.05]))
    result.per_token.sum().backward()
    torch.testing.assert_close(logprobs.grad, -advantages)


def test_cispo_by_hand_keeps_every_tokens_gradient_and_cuts_its_weight():
    logprobs = f64([math.log(0.9), math.log(0.2), math.log(0.5)]).requires_grad_()
    old = f64([math.log(0.1), math.log(0.8), math.log(0.5)])
    result = policy_loss("cispo", logprobs, old, f64([1.0, 1.0, -2.0]), clip_low=1.0, clip_high=4.0)
    result.per_token.sum().backward()
    torch.testing.assert_close(logprobs.grad, f64([-5.0, -0.25, 2.0]))
    assert result.clipped.tolist() == [True, False, False]


def test_dppo_by_hand_looks_at_probabilities_and_not_at_ratios():
    # a rare token a thousand times as likely stays in; a common one that rose by 0.3 is left out
    logprobs = f64([math.log(1e-2), math.log(0.8), math.log(0.2), math.log(0.2)]).requires_grad_()
    old = f64([math.log(1e-5), math.log(0.5), math.log(0.5), math.log(0.5)])
    result = policy_loss(
        "dppo", logprobs, old, [1.0, 1.0, -1.0, 1.0], bound_low=0.2, bound_high=0.2, divergence_coef=0.0
    )
    torch.testing.assert_close(result.per_token, f64([-1000.0, 0.0, 0.0, -0.4]))
    assert result.clipped.tolist() == [False, True, True, False]
    # IPO's mask does not ask for the advantage: the last one, which fell and is to rise, is left out too
    bounds = {"bound_low": 0.2, "bound_high": 0.2, "divergence_coef": 0.0}
    result = policy_loss("ipo_mask", logprobs, old, [1.0, 1.0, -1.0, 1.0], **bounds)
    torch.testing.assert_close(result.per_token, f64([-1000.0, 0.0, 0.0, 0.0]))


@pytest.mark.parametrize("name", ["sapo", "cispo", "dppo", "ipo_mask", "gmpo"])
def test_far_off_policy_the_loss_is_finite(name):
    assert torch.isfinite(policy_loss(name, [-1.0, -900.0], [-900.0, -1.0], [-1.0, 1.0]).per_token).all()
