from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.advantages.estimates import whitened
from headrace.services.trainer.algorithms.algorithm import Estimate
from tests.unit.services.trainer.algorithms.flat_rollouts import estimate, signals_of

REWARDS = st.lists(st.floats(-10, 10).map(lambda x: round(x, 3)), min_size=2, max_size=9)
NAN = float("nan")


def of(name, rewards, baseline=None, lengths=None, **options):
    """[rollouts]: the advantages of one group."""
    baselines = None if baseline is None else torch.tensor([baseline], dtype=torch.float64)
    lengths = torch.tensor([1] * len(rewards) if lengths is None else lengths, dtype=torch.long)
    found = estimate(name, signals_of(rewards, lengths=lengths, baselines=baselines), **options).advantages
    assert len(found) == lengths.sum()
    return found[lengths.cumsum(0) - 1]


def advantages(rewards, normalize_std=True, eps=1e-6):
    return of("group", rewards, normalize_std=normalize_std, std_eps=eps)


def test_two_of_four_right_by_hand():
    # mean 1/2, unbiased std = sqrt(4 * 0.25 / 3) = 0.57735
    result = advantages([1.0, 0.0, 0.0, 1.0], eps=1e-12)
    torch.testing.assert_close(result, torch.tensor([1, -1, -1, 1], dtype=torch.float64) * 3**0.5 / 2)
    torch.testing.assert_close(advantages([3.0, 0.0, 0.0], normalize_std=False).tolist(), [2.0, -1.0, -1.0])


def test_equal_rewards_have_no_advantage():
    torch.testing.assert_close(advantages([0.1] * 8), torch.zeros(8, dtype=torch.float64), atol=1e-9, rtol=0)


@given(rewards=REWARDS, shift=st.floats(-5, 5), normalize=st.booleans())
def test_advantages_sum_to_zero_and_ignore_a_reward_shift(rewards, shift, normalize):
    result = advantages(rewards, normalize_std=normalize, eps=1e-3)
    assert float(result.sum()) == pytest.approx(0, abs=1e-8)
    shifted = advantages([reward + shift for reward in rewards], normalize_std=normalize, eps=1e-3)
    torch.testing.assert_close(shifted, result, atol=1e-9, rtol=0)


@given(rewards=REWARDS, scale=st.floats(0.5, 20))
def test_a_reward_scale_cancels_with_the_std_and_stays_without(rewards, scale):
    scaled = [reward * scale for reward in rewards]
    torch.testing.assert_close(
        advantages(scaled, normalize_std=False), advantages(rewards, normalize_std=False) * scale, atol=1e-9, rtol=1e-9
    )
    if torch.tensor(rewards).std() > 0.01:
        torch.testing.assert_close(advantages(scaled, eps=1e-12), advantages(rewards, eps=1e-12), atol=1e-7, rtol=1e-7)


KINDS = {"group": {}, "dr_grpo": {"normalize_std": False}, "mean_baseline": {}, "rloo": {}, "opo": {}}
"""Those whose baseline is the rest of the group, and their options."""


def of_kind(kind, rewards):
    lengths = [place % 4 + 1 for place in range(len(rewards))] if kind == "opo" else None
    return of("group" if kind == "dr_grpo" else kind, rewards, lengths=lengths, **KINDS[kind])


def test_the_other_baselines_by_hand():
    rewards = [3.0, 0.0, 0.0]
    assert of("mean_baseline", rewards).tolist() == [2.0, -1.0, -1.0]
    assert of("rloo", rewards).tolist() == [3.0, -1.5, -1.5]
    # a baseline of (3 * 1 + 0 * 2 + 0 * 3) / 6
    assert of("opo", rewards, lengths=[1, 2, 3]).tolist() == [2.5, -0.5, -0.5]
    assert of("remax", rewards, 1.0).tolist() == [2.0, -1.0, -1.0]


@given(rewards=REWARDS)
def test_rloo_is_the_mean_of_the_others_and_g_over_g_minus_one_of_grpo_without_std(rewards):
    ours = of("rloo", rewards)
    others = [reward - (sum(rewards) - reward) / (len(rewards) - 1) for reward in rewards]
    assert ours.tolist() == pytest.approx(others, abs=1e-9)
    scaled = advantages(rewards, normalize_std=False) * len(rewards) / (len(rewards) - 1)
    torch.testing.assert_close(ours, scaled)


@given(rewards=REWARDS, data=st.data())
def test_opo_weighs_the_baseline_by_length(rewards, data):
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=len(rewards), max_size=len(rewards)))
    ours = of("opo", rewards, lengths=lengths)
    tokens = [reward for reward, length in zip(rewards, lengths, strict=True) for _ in range(length)]
    assert ours.tolist() == pytest.approx([reward - sum(tokens) / len(tokens) for reward in rewards], abs=1e-9)
    assert float((ours * torch.tensor(lengths)).sum()) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@given(rewards=REWARDS, data=st.data())
def test_an_abstention_has_no_advantage_and_changes_no_other(kind, rewards, data):
    place = len(rewards) if kind == "opo" else data.draw(st.integers(0, len(rewards)))
    ours = of_kind(kind, [*rewards[:place], NAN, *rewards[place:]])
    assert ours[place] == 0
    torch.testing.assert_close(torch.cat([ours[:place], ours[place + 1 :]]), of_kind(kind, rewards))


def test_the_std_of_the_batch_by_numpy():
    rewards, sizes = [3.0, 0.0, 0.5, 9.0, NAN, 7.0, 5.0], [3, 3, 1]
    centered = [*(np.array(rewards[:3]) - np.mean(rewards[:3])), 1.0, 0.0, -1.0, 0.0]
    expected = np.array(centered) / (np.nanstd(rewards, ddof=1) + 0.01)
    options = {"batch_std": True, "std_eps": 0.01}
    whole = estimate("group", signals_of(rewards, sizes=sizes), **options).advantages
    assert whole.tolist() == pytest.approx(expected, rel=1e-9)
    # Steps of a group's rollouts likewise, each token one.
    scores = torch.tensor(rewards, dtype=torch.float64)
    steps = signals_of([0.0] * 7, sizes=sizes, token_scores=scores)
    assert estimate("group_process", steps, **options).advantages.tolist() == pytest.approx(expected, rel=1e-9)


def by_numpy(values, sizes, eps):
    """(x - mean) / (std + eps) of each group's values that are not NaN; 0 for the others."""
    made = []
    for own in np.split(values, np.cumsum(sizes)[:-1]):
        std = np.nanstd(own, ddof=1) if np.isfinite(own).sum() > 1 else np.inf
        made.append(np.nan_to_num((own - np.nanmean(own)) / (std + eps)))
    return np.concatenate(made)


@given(seed=st.integers(0, 99), sizes=st.lists(st.integers(2, 4), min_size=1, max_size=4))
def test_gdpo_normalizes_each_component_in_its_group_and_whitens_their_sum(seed, sizes):
    draw, count = np.random.default_rng(seed), sum(sizes)
    values = {"exact": draw.normal(size=count), "length": 100 * draw.normal(size=count), "equal": np.ones(count)}
    values["length"][0] = np.nan
    weights = {"exact": np.full(count, 1.0), "length": draw.normal(size=count), "equal": np.full(count, 3.0)}
    summed = sum(weights[name] * by_numpy(own, sizes, 1e-6) for name, own in values.items())
    torched = {name: torch.from_numpy(own) for name, own in values.items()}
    # The last rollout has no reward: it enters neither a group nor the batch.
    absent = {name: torch.cat([own, torch.tensor([NAN], dtype=torch.float64)]) for name, own in torched.items()}
    signals = signals_of(
        [*draw.normal(size=count), NAN],
        sizes=[*sizes[:-1], sizes[-1] + 1],
        components=absent,
        component_weights={name: torch.from_numpy(np.append(own, 0.0)) for name, own in weights.items()},
    )
    found = estimate("gdpo", signals).advantages.tolist()
    assert found == pytest.approx([*by_numpy(summed, [count], 1e-6), 0.0], rel=1e-9, abs=1e-9)


def slow_group(kind, rewards, lengths):
    """numpy: the advantage of each rollout of one group."""
    match kind:
        case "group":
            return (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
        case "rloo":
            others = (rewards.sum() - rewards) / (len(rewards) - 1)
            return rewards - others
        case "opo":
            return rewards - np.average(rewards, weights=lengths)
        case _:
            return rewards - rewards.mean()


@pytest.mark.parametrize("kind", ["group", "dr_grpo", "mean_baseline", "rloo", "opo", "group_process"])
@given(data=st.data())
def test_the_kl_of_a_rollout_comes_off_its_reward_before_the_baseline(kind, data):
    sizes = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    lengths = np.array(data.draw(st.lists(st.integers(1, 4), min_size=sum(sizes), max_size=sum(sizes))))
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    rewards, penalties = draw.normal(size=sum(sizes)), draw.normal(size=lengths.sum())
    left = rewards - np.add.reduceat(penalties, np.cumsum(lengths) - lengths)
    parts = zip(np.split(left, np.cumsum(sizes)[:-1]), np.split(lengths, np.cumsum(sizes)[:-1]), strict=True)
    expected = np.concatenate([slow_group(kind.removesuffix("_process"), *part) for part in parts])
    # An abstention has no reward to take it off, and changes nothing.
    absent = signals_of(
        [*rewards, NAN],
        sizes=[*sizes[:-1], sizes[-1] + 1],
        lengths=[*lengths, 2],
        penalties=torch.tensor([*penalties, 9.0, 9.0], dtype=torch.float64),
    )
    found = estimate("group" if kind == "dr_grpo" else kind, absent, **KINDS.get(kind, {})).advantages.tolist()
    assert found == pytest.approx([*np.repeat(expected, lengths), 0.0, 0.0], rel=1e-9, abs=1e-9)


def test_opo_forgets_the_length_of_an_abstention_too():
    ours = of("opo", [3.0, NAN, 0.0, 0.0], lengths=[1, 90, 2, 3])
    assert ours.tolist() == [2.5, 0.0, -0.5, -0.5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rewards", [[], [5.0], [5.0, NAN], [NAN, NAN, NAN]])
def test_fewer_than_two_scored_rollouts_have_no_advantage(kind, rewards):
    assert of_kind(kind, rewards).tolist() == [0.0] * len(rewards)


def test_abstentions_and_an_unscored_greedy_rollout_give_no_advantage_against_other_baselines():
    assert of("remax", [2.0, NAN], 1.0).tolist() == [1.0, 0.0]
    assert of("remax", [2.0, 3.0], NAN).tolist() == [0.0, 0.0]
    signals = signals_of([2.0, 1.0, 0.5], lengths=[0, 0, 0])
    assert estimate("opo", signals).advantages.tolist() == []


@given(values=REWARDS, absent=st.booleans())
def test_whitening_gives_scored_tokens_mean_zero_and_variance_one_and_keeps_their_order(values, absent):
    assume(max(values) - min(values) > 0.1)
    signals = signals_of([*values, NAN] if absent else values)
    plain = Estimate(advantages=signals.rewards.nan_to_num(0.0))
    made = whitened(plain, signals).advantages
    own = made[: len(values)]
    assert float(own.mean()) == pytest.approx(0, abs=1e-9)
    assert float(own.var(correction=1)) == pytest.approx(1, abs=1e-4)
    assert (own.argsort(stable=True) == plain.advantages[: len(values)].argsort(stable=True)).all()
    assert made[len(values) :].tolist() == [0.0] * absent


def test_whitening_by_hand():
    # mean 2, variance ((-2)^2 + 0 + 2^2) / 2 = 4
    signals = signals_of([0.0, 2.0, 4.0])
    made = whitened(Estimate(advantages=signals.rewards), signals).advantages
    assert made.tolist() == pytest.approx([-1.0, 0.0, 1.0], abs=1e-8)
    # The token that is not trained counts for neither: mean 1, variance 2.
    masked = replace(signals, trained=torch.tensor([True, True, False]))
    found = whitened(Estimate(advantages=signals.rewards), masked).advantages
    assert found.tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5, 3 * 0.5**0.5], abs=1e-8)
    alone = signals_of([7.0, NAN])
    assert whitened(Estimate(advantages=torch.tensor([7.0, 0.0])), alone).advantages.tolist() == [7.0, 0.0]
