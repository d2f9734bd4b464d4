import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.advantages.returns import discounted_returns, token_rewards
from headrace.services.trainer.algorithms.segments import spread
from tests.unit.services.trainer.algorithms.flat_rollouts import drawn, estimate, flat, numbers, signals_of

STEPS = drawn(numbers(-2, 2), numbers(-2, 2))
"""Tokens of (reward, value)."""
GAMMA, LAM = st.floats(0.01, 1), st.floats(0, 1)


def of_steps(name, rollouts, cut=None, **options):
    """The estimate of rollouts whose tokens are rewarded; those that were `cut` go on with their last value."""
    rewards, values, lengths = flat(rollouts, 2)
    cut = torch.tensor([False] * len(rollouts) if cut is None else cut)
    signals = signals_of([0.0] * len(rollouts), lengths=lengths, token_scores=rewards, values=values, truncated=cut)
    return estimate(name, signals, **({"bootstrap_truncated": True} if cut.any() else {}), **options)


def after_last(rollout, cut):
    return rollout[-1][1] if cut and rollout else 0.0


def slow_gae(rollout, gamma, lam, next_value):
    """The formula as it stands in the reference, from the end."""
    carried, advantages = 0.0, []
    for reward, value in reversed(rollout):
        carried = reward + gamma * next_value - value + gamma * lam * carried
        next_value = value
        advantages.insert(0, carried)
    return advantages


def test_gae_by_hand():
    # the reward of 1 at the end; gamma 0.5, lambda 0.5
    # delta: 0 + 0.5 * 0.4 - 0.2 = 0, 1 - 0.4 = 0.6; A: 0 + 0.25 * 0.6, 0.6
    found = of_steps("gae", [[(0.0, 0.2), (1.0, 0.4)]], gamma=0.5, lam=0.5)
    assert found.advantages.tolist() == pytest.approx([0.15, 0.6])
    assert found.returns.tolist() == pytest.approx([0.35, 1.0])
    cut = of_steps("gae", [[(0.0, 0.2), (1.0, 0.4)]], [True], gamma=0.5, lam=0.5)
    assert cut.advantages.tolist() == pytest.approx([0.2, 0.8])


@given(rollouts=STEPS, gamma=GAMMA, lam=LAM, lam_critic=LAM, data=st.data())
def test_gae_equals_the_recurrence_written_as_a_loop(rollouts, gamma, lam, lam_critic, data):
    cut = data.draw(st.lists(st.booleans(), min_size=len(rollouts), max_size=len(rollouts)))
    found = of_steps("gae", rollouts, cut, gamma=gamma, lam=lam, lam_critic=lam_critic)
    ours, of_critic = (
        [x for one, was in zip(rollouts, cut, strict=True) for x in slow_gae(one, gamma, each, after_last(one, was))]
        for each in (lam, lam_critic)
    )
    assert found.advantages.tolist() == pytest.approx(ours, abs=1e-9)
    values = flat(rollouts, 2)[1].tolist()
    assert found.returns.tolist() == pytest.approx([x + value for x, value in zip(of_critic, values, strict=True)])


@given(rollouts=STEPS, gamma=GAMMA)
def test_lambda_one_is_monte_carlo_minus_value_and_lambda_zero_is_one_step(rollouts, gamma):
    far, near = (of_steps("gae", rollouts, gamma=gamma, lam=lam) for lam in (1.0, 0.0))
    monte_carlo = of_steps("monte_carlo", rollouts, gamma=gamma)
    torch.testing.assert_close(far.advantages, monte_carlo.advantages)
    torch.testing.assert_close(far.returns, monte_carlo.returns)
    torch.testing.assert_close(near.advantages, of_steps("k_step", rollouts, gamma=gamma, k_steps=1).advantages)
    longest = of_steps("k_step", rollouts, gamma=gamma, k_steps=99)
    torch.testing.assert_close(longest.advantages, monte_carlo.advantages)


@given(rollouts=STEPS, gamma=GAMMA, k=st.integers(1, 6), data=st.data())
def test_k_steps_equal_their_definition(rollouts, gamma, k, data):
    cut = data.draw(st.lists(st.booleans(), min_size=len(rollouts), max_size=len(rollouts)))
    expected = []
    for rollout, was in zip(rollouts, cut, strict=True):
        for start in range(len(rollout)):
            end = min(start + k, len(rollout))
            total = sum(gamma ** (t - start) * rollout[t][0] for t in range(start, end))
            after = rollout[end][1] if end < len(rollout) else after_last(rollout, was)
            expected.append(total + gamma ** (end - start) * after - rollout[start][1])
    assert of_steps("k_step", rollouts, cut, gamma=gamma, k_steps=k).advantages.tolist() == pytest.approx(
        expected, abs=1e-9
    )


@given(rollouts=STEPS, gamma=GAMMA)
def test_returns_equal_their_definition(rollouts, gamma):
    expected = [
        sum(gamma ** (t - start) * rollout[t][0] for t in range(start, len(rollout)))
        for rollout in rollouts
        for start in range(len(rollout))
    ]
    assert of_steps("return", rollouts, gamma=gamma).advantages.tolist() == pytest.approx(expected, abs=1e-9)


def test_vapos_lambda_by_hand_and_never_below_zero():
    # alpha 0.05: of 40 tokens 0.5, of 20 and fewer 0, one-step TD
    for length, lam in ((1, 0.0), (20, 0.0), (40, 0.5)):
        rollout = [[(1.0, 0.5)] * length]
        adapted, given_lam = of_steps("gae", rollout, lam_alpha=0.05), of_steps("gae", rollout, lam=lam)
        torch.testing.assert_close(adapted.advantages, given_lam.advantages)


def test_an_outcome_is_at_its_rollouts_last_token_and_an_abstention_is_zero():
    placed = token_rewards(signals_of([1.0, 7.0, float("nan"), -2.0], lengths=[2, 0, 1, 3]))
    assert placed.tolist() == [0, 1, 0, 0, 0, -2]


@given(rollouts=STEPS)
def test_an_undiscounted_outcome_reaches_every_token_of_its_rollout(rollouts):
    *_, lengths = flat(rollouts, 2)
    outcomes = torch.arange(len(lengths), dtype=torch.float64)
    returns = discounted_returns(token_rewards(signals_of(outcomes, lengths=lengths)), lengths, gamma=1.0)
    torch.testing.assert_close(returns, spread(outcomes, lengths))
