import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.advantages.returns import (
    discounted_returns,
    gae,
    k_step_advantages,
    length_adaptive_lambda,
    place_outcome,
)
from headrace.services.trainer.algorithms.segments import spread
from tests.unit.services.trainer.algorithms.flat_rollouts import drawn, flat, numbers

STEPS = drawn(numbers(-2, 2), numbers(-2, 2), st.sampled_from([0.0, 1.0]))
"""Tokens of (reward, value, whether it is a step)."""
SHARE = st.floats(0, 1)


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def same(count, value):
    return torch.full((count,), value, dtype=torch.float64)


def slow_gae(rollout, gamma, lam, bootstrap, masked):
    """The formula as it stands in the reference: from the end, with a carry through masked tokens."""
    next_value, carried, advantages = bootstrap, 0.0, []
    for reward, value, step in reversed(rollout):
        if step or not masked:
            delta = reward + gamma * next_value - value
            carried = delta + gamma * lam * carried
            next_value = value
        advantages.insert(0, carried)
    return advantages


def test_gae_by_hand():
    # the reward of 1 at the end; gamma 0.5, lambda 0.5
    # delta: 0 + 0.5 * 0.4 - 0.2 = 0, 1 - 0.4 = 0.6; A: 0 + 0.25 * 0.6, 0.6
    advantages, returns = gae(
        f64([0.0, 1.0]), f64([0.2, 0.4]), torch.tensor([2]), gamma=0.5, lam=f64([0.5]), bootstrap=f64([0.0])
    )
    torch.testing.assert_close(advantages, f64([0.15, 0.6]))
    torch.testing.assert_close(returns, f64([0.35, 1.0]))
    cut, _ = gae(f64([0.0, 1.0]), f64([0.2, 0.4]), torch.tensor([2]), gamma=0.5, lam=f64([0.5]), bootstrap=f64([2.0]))
    torch.testing.assert_close(cut, f64([0.4, 1.6]))


@given(rollouts=STEPS, gamma=SHARE, data=st.data(), masked=st.booleans())
def test_gae_equals_the_recurrence_written_as_a_loop(rollouts, gamma, data, masked):
    rewards, values, steps, lengths = flat(rollouts, 3)
    each = st.lists(SHARE, min_size=len(rollouts), max_size=len(rollouts))
    lam, bootstrap = data.draw(each), data.draw(each)
    advantages, returns = gae(
        rewards,
        values,
        lengths,
        gamma=gamma,
        lam=f64(lam),
        bootstrap=f64(bootstrap),
        mask=steps.bool() if masked else None,
    )
    expected = [
        x
        for rollout, own_lam, after in zip(rollouts, lam, bootstrap, strict=True)
        for x in slow_gae(rollout, gamma, own_lam, after, masked)
    ]
    assert advantages.tolist() == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(returns, advantages + values)


@given(rollouts=STEPS, gamma=SHARE, lam=SHARE)
def test_masked_gae_is_gae_of_the_steps_alone(rollouts, gamma, lam):
    rewards, values, steps, lengths = flat(rollouts, 3)
    mask = steps.bool()
    whole, _ = gae(
        rewards,
        values,
        lengths,
        gamma=gamma,
        lam=same(len(lengths), lam),
        bootstrap=same(len(lengths), 0.5),
        mask=mask,
    )
    taken = torch.tensor([int(sum(token[2] for token in rollout)) for rollout in rollouts])
    alone, _ = gae(
        rewards[mask],
        values[mask],
        taken,
        gamma=gamma,
        lam=same(len(lengths), lam),
        bootstrap=same(len(lengths), 0.5),
    )
    torch.testing.assert_close(whole[mask], alone)


@given(rollouts=STEPS, gamma=SHARE)
def test_lambda_one_is_monte_carlo_minus_value_and_lambda_zero_is_one_step(rollouts, gamma):
    rewards, values, _, lengths = flat(rollouts, 3)
    nothing = same(len(lengths), 0.0)
    far, returns = gae(rewards, values, lengths, gamma=gamma, lam=same(len(lengths), 1.0), bootstrap=nothing)
    monte_carlo = discounted_returns(rewards, lengths, gamma=gamma)
    torch.testing.assert_close(far, monte_carlo - values)
    torch.testing.assert_close(returns, monte_carlo)
    near, _ = gae(rewards, values, lengths, gamma=gamma, lam=nothing, bootstrap=nothing)
    torch.testing.assert_close(near, k_step_advantages(rewards, values, lengths, gamma=gamma, k=1, bootstrap=nothing))
    longest = k_step_advantages(rewards, values, lengths, gamma=gamma, k=99, bootstrap=nothing)
    torch.testing.assert_close(longest, monte_carlo - values)


@given(rollouts=STEPS, gamma=SHARE, k=st.integers(1, 6))
def test_k_steps_equal_their_definition(rollouts, gamma, k):
    rewards, values, _, lengths = flat(rollouts, 3)
    expected = []
    for rollout in rollouts:
        for start in range(len(rollout)):
            end = min(start + k, len(rollout))
            total = sum(gamma ** (t - start) * rollout[t][0] for t in range(start, end))
            after = rollout[end][1] if end < len(rollout) else 0.7
            expected.append(total + gamma ** (end - start) * after - rollout[start][1])
    bootstrap = same(len(lengths), 0.7)
    ours = k_step_advantages(rewards, values, lengths, gamma=gamma, k=k, bootstrap=bootstrap)
    assert ours.tolist() == pytest.approx(expected, abs=1e-9)


@given(rollouts=STEPS, gamma=SHARE)
def test_returns_equal_their_definition(rollouts, gamma):
    rewards, _, _, lengths = flat(rollouts, 3)
    expected = [
        sum(gamma ** (t - start) * rollout[t][0] for t in range(start, len(rollout)))
        for rollout in rollouts
        for start in range(len(rollout))
    ]
    assert discounted_returns(rewards, lengths, gamma=gamma).tolist() == pytest.approx(expected, abs=1e-9)


def test_the_bootstrap_is_seen_by_a_rollout_whose_last_tokens_are_masked():
    advantages, _ = gae(
        f64([0.0, 9.0]),
        f64([1.0, 5.0]),
        torch.tensor([2]),
        gamma=1.0,
        lam=f64([1.0]),
        bootstrap=f64([3.0]),
        mask=torch.tensor([True, False]),
    )
    assert advantages[0] == 3.0 - 1.0


def test_vapos_lambda_by_hand_and_never_below_zero():
    lam = length_adaptive_lambda(torch.tensor([0, 1, 20, 40, 2000]), alpha=0.05)
    torch.testing.assert_close(lam, torch.tensor([0.0, 0.0, 0.0, 0.5, 0.99]))


def test_an_outcome_is_at_its_rollouts_last_token_and_an_abstention_is_zero():
    placed = place_outcome(f64([1.0, 7.0, float("nan"), -2.0]), torch.tensor([2, 0, 1, 3]))
    assert placed.tolist() == [0, 1, 0, 0, 0, -2]


@given(rollouts=STEPS)
def test_an_undiscounted_outcome_reaches_every_token_of_its_rollout(rollouts):
    *_, lengths = flat(rollouts, 3)
    outcomes = torch.arange(len(lengths), dtype=torch.float64)
    returns = discounted_returns(place_outcome(outcomes, lengths), lengths, gamma=1.0)
    torch.testing.assert_close(returns, spread(outcomes, lengths))


def test_no_result_carries_a_gradient_and_float32_stays_float32():
    values = torch.randn(3, requires_grad=True)
    one = torch.ones(1)
    made = gae(torch.ones(3), values, torch.tensor([3]), gamma=0.9, lam=one, bootstrap=one)
    made += (k_step_advantages(torch.ones(3), values, torch.tensor([3]), gamma=0.9, k=2, bootstrap=one),)
    assert all(not tensor.requires_grad and tensor.dtype == torch.float32 for tensor in made)


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="k is 0"):
        k_step_advantages(f64([1.0]), f64([1.0]), torch.tensor([1]), gamma=1.0, k=0, bootstrap=f64([0.0]))
