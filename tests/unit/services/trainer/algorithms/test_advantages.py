import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.algorithms.advantages import group_relative_advantages

REWARDS = st.lists(st.floats(-10, 10).map(lambda x: round(x, 3)), min_size=2, max_size=9)


def advantages(rewards, normalize_std=True, eps=1e-6):
    values = torch.tensor(rewards, dtype=torch.float64)
    return group_relative_advantages(values, normalize_std=normalize_std, eps=eps)


def test_two_of_four_right_by_hand():
    # mean 1/2, unbiased std = sqrt(4 * 0.25 / 3) = 0.57735
    result = advantages([1.0, 0.0, 0.0, 1.0], eps=0.0)
    torch.testing.assert_close(result, torch.tensor([1, -1, -1, 1], dtype=torch.float64) * 3**0.5 / 2)
    torch.testing.assert_close(advantages([3.0, 0.0, 0.0], normalize_std=False).tolist(), [2.0, -1.0, -1.0])


def test_a_group_of_one_has_no_advantage_not_its_reward():
    assert advantages([7.0]).tolist() == [0.0]
    assert advantages([7.0], normalize_std=False).tolist() == [0.0]


def test_equal_rewards_have_no_advantage():
    torch.testing.assert_close(advantages([0.1] * 8), torch.zeros(8, dtype=torch.float64), atol=1e-9, rtol=0)


@given(rewards=REWARDS, shift=st.floats(-5, 5), normalize=st.booleans())
def test_advantages_sum_to_zero_and_ignore_a_reward_shift(rewards, shift, normalize):
    result = advantages(rewards, normalize_std=normalize, eps=1e-3)
    assert float(result.sum()) == pytest.approx(0, abs=1e-8)
    shifted = advantages([reward + shift for reward in rewards], normalize_std=normalize, eps=1e-3)
    torch.testing.assert_close(shifted, result, atol=1e-9, rtol=0)


@given(rewards=REWARDS, data=st.data())
def test_a_permutation_of_rewards_permutes_the_advantages(rewards, data):
    order = data.draw(st.permutations(range(len(rewards))))
    permuted = advantages([rewards[i] for i in order], eps=1e-3)
    torch.testing.assert_close(permuted, advantages(rewards, eps=1e-3)[list(order)], atol=1e-9, rtol=0)


@given(rewards=REWARDS, scale=st.floats(0.5, 20))
def test_a_reward_scale_cancels_with_the_std_and_stays_without(rewards, scale):
    scaled = [reward * scale for reward in rewards]
    torch.testing.assert_close(
        advantages(scaled, normalize_std=False), advantages(rewards, normalize_std=False) * scale, atol=1e-9, rtol=1e-9
    )
    if torch.tensor(rewards).std() > 0.01:
        torch.testing.assert_close(advantages(scaled, eps=0.0), advantages(rewards, eps=0.0), atol=1e-7, rtol=1e-7)
