import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.advantages.rollouts import (
    group_relative_advantages,
    mean_baseline_advantages,
    opo_advantages,
    remax_advantages,
    rloo_advantages,
)

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


NAN = float("nan")
KINDS = {
    "group": lambda rewards: group_relative_advantages(rewards, normalize_std=True, eps=1e-6),
    "dr_grpo": lambda rewards: group_relative_advantages(rewards, normalize_std=False, eps=1e-6),
    "mean": mean_baseline_advantages,
    "rloo": rloo_advantages,
    "opo": lambda rewards: opo_advantages(rewards, torch.arange(len(rewards)) % 4 + 1),
}
"""Those whose baseline is the rest of the group."""


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def test_the_other_baselines_by_hand():
    rewards = f64([3.0, 0.0, 0.0])
    assert mean_baseline_advantages(rewards).tolist() == [2.0, -1.0, -1.0]
    assert rloo_advantages(rewards).tolist() == [3.0, -1.5, -1.5]
    # a baseline of (3 * 1 + 0 * 2 + 0 * 3) / 6
    assert opo_advantages(rewards, torch.tensor([1, 2, 3])).tolist() == [2.5, -0.5, -0.5]
    assert remax_advantages(rewards, 1.0).tolist() == [2.0, -1.0, -1.0]


@given(rewards=REWARDS)
def test_rloo_is_the_mean_of_the_others_and_g_over_g_minus_one_of_grpo_without_std(rewards):
    ours = rloo_advantages(f64(rewards))
    others = [reward - (sum(rewards) - reward) / (len(rewards) - 1) for reward in rewards]
    assert ours.tolist() == pytest.approx(others, abs=1e-9)
    scaled = advantages(rewards, normalize_std=False) * len(rewards) / (len(rewards) - 1)
    torch.testing.assert_close(ours, scaled)


@given(rewards=REWARDS, data=st.data())
def test_opo_weighs_the_baseline_by_length(rewards, data):
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=len(rewards), max_size=len(rewards)))
    ours = opo_advantages(f64(rewards), torch.tensor(lengths))
    tokens = [reward for reward, length in zip(rewards, lengths, strict=True) for _ in range(length)]
    assert ours.tolist() == pytest.approx([reward - sum(tokens) / len(tokens) for reward in rewards], abs=1e-9)
    assert float((ours * torch.tensor(lengths)).sum()) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@given(rewards=REWARDS, data=st.data())
def test_an_abstention_changes_nobodys_advantage_and_has_none(kind, rewards, data):
    of = KINDS[kind]
    place = len(rewards) if kind == "opo" else data.draw(st.integers(0, len(rewards)))
    ours = of(f64([*rewards[:place], NAN, *rewards[place:]]))
    assert ours[place] == 0
    torch.testing.assert_close(torch.cat([ours[:place], ours[place + 1 :]]), of(f64(rewards)))


def test_opo_forgets_the_length_of_an_abstention_too():
    ours = opo_advantages(f64([3.0, NAN, 0.0, 0.0]), torch.tensor([1, 90, 2, 3]))
    assert ours.tolist() == [2.5, 0.0, -0.5, -0.5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rewards", [[], [5.0], [5.0, NAN], [NAN, NAN, NAN]])
def test_fewer_than_two_scored_rollouts_have_no_advantage(kind, rewards):
    assert KINDS[kind](f64(rewards)).tolist() == [0.0] * len(rewards)


def test_abstentions_and_an_unscored_greedy_rollout_give_no_advantage_against_other_baselines():
    assert remax_advantages(f64([2.0, NAN]), 1.0).tolist() == [1.0, 0.0]
    assert remax_advantages(f64([2.0, 3.0]), NAN).tolist() == [0.0, 0.0]
    assert opo_advantages(f64([2.0, 1.0]), torch.tensor([0, 0])).isfinite().all()
