"""Rewards of single tokens beside the rollout's own, against numbers made by hand."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from headrace.services.trainer.algorithms.algorithm import Signals
from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.algorithms.parts import ADVANTAGES
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.durability.ledger import common_score
from headrace.services.trainer.step.batch import TrainRollout, assemble, batch_metrics, step_scores
from headrace.wire.contracts import Score
from tests.unit.services.trainer.builders import scored_group
from tests.unit.services.trainer.step.test_updates import how, run, with_greedy

LENGTHS = (3, 2, 4, 1)
NAN = math.nan
SCORES = ((0.5, NAN, -1.0), (NAN, 2.0), (NAN, NAN, NAN, NAN), (0.25,))
"""NaN: the token has no score."""
OUTCOMES = (1.0, 0.0, 1.0, -1.0)


def signals(**more):
    """Two groups of two."""
    tokens = [score for own in SCORES for score in own]
    return Signals(
        rewards=torch.tensor(OUTCOMES, dtype=torch.float64),
        group_sizes=(2, 2),
        baselines=None,
        lengths=torch.tensor(LENGTHS),
        truncated=torch.zeros(4, dtype=torch.bool),
        token_scores=torch.tensor(tokens, dtype=torch.float64),
        **more,
    )


def advantages(name, used=None, **table):
    values = AlgorithmTable.model_validate({"anchor": "proximal", "policy_loss": "policy_gradient", **table})
    algorithm = build_algorithm(values.model_copy(update={"advantage": name}))
    return torch.split(algorithm.estimate(used or signals()).advantages, list(LENGTHS))


def by_rollout(found):
    """The one number of each rollout."""
    assert all(len(set(part.tolist())) == 1 for part in found)
    return [part[0].item() for part in found]


def test_distillation_gives_a_token_its_own_score_and_the_last_one_the_rollouts():
    algorithm = build_algorithm(AlgorithmTable(name="distillation"))
    found = torch.split(algorithm.estimate(signals()).advantages, list(LENGTHS))
    own = [[0.0 if math.isnan(score) else score for score in scores] for scores in SCORES]
    for scores, outcome in zip(own, OUTCOMES, strict=True):
        scores[-1] += outcome
    assert [part.tolist() for part in found] == own


def test_a_whole_rollouts_reward_is_its_own_and_the_sum_of_its_tokens():
    totals = [0.5, 2.0, 1.0, -0.75]
    assert by_rollout(advantages("group", normalize_std=False)) == pytest.approx([-0.75, 0.75, 0.875, -0.875])
    assert by_rollout(advantages("mean_baseline")) == pytest.approx([-0.75, 0.75, 0.875, -0.875])
    assert by_rollout(advantages("rloo")) == pytest.approx([-1.5, 1.5, 1.75, -1.75])
    weighted = [(3 * totals[0] + 2 * totals[1]) / 5, (4 * totals[2] + totals[3]) / 5]
    expected = [total - weighted[place // 2] for place, total in enumerate(totals)]
    assert by_rollout(advantages("opo")) == pytest.approx(expected)
    remax = advantages("remax", dataclasses.replace(signals(), baselines=torch.tensor([0.5, 0.25]).double()))
    assert by_rollout(remax) == pytest.approx([0.0, 1.5, 0.75, -1.0])


def test_returns_get_them_at_their_tokens():
    found = advantages("return", gamma=0.5)
    assert found[0].tolist() == pytest.approx([0.5 + 0.5 * (0 + 0.5 * (-1 + 1)), 0.0, 0.0])
    assert found[1].tolist() == pytest.approx([1.0, 2.0])
    assert found[2].tolist() == pytest.approx([0.125, 0.25, 0.5, 1.0])
    assert found[3].tolist() == pytest.approx([-0.75])


def test_gae_gets_them_at_their_tokens():
    values = torch.tensor([0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    table = AlgorithmTable(name="ppo", gamma=0.9, lam=0.5, kl_coef=0.0, whiten=False)
    found = build_algorithm(table).estimate(signals(values=values))
    last = (-1.0 + 1.0) - 0.3
    middle = 0.9 * 0.3 - 0.2 + 0.45 * last
    first = 0.5 + 0.9 * 0.2 - 0.1 + 0.45 * middle
    assert found.advantages[:3].tolist() == pytest.approx([first, middle, last])
    assert found.returns[:3].tolist() == pytest.approx([first + 0.1, middle + 0.2, last + 0.3])


def test_process_supervision_compares_the_steps_of_a_group():
    """DeepSeekMath: the steps 0.5, -1 and 2 of the first group have mean 0.5 and (unbiased) std 1.5."""
    found = advantages("group_process", std_eps=1e-9)
    outcome = 0.5 / 0.5**0.5
    assert found[0].tolist() == pytest.approx([outcome + 0 - 1, outcome - 1, outcome - 1])
    assert found[1].tolist() == pytest.approx([-outcome + 1, -outcome + 1])
    # A single step has nothing to be compared with; the outcomes still have.
    other = 1 / 2**0.5
    assert found[2].tolist() == pytest.approx([other] * 4)
    assert found[3].tolist() == pytest.approx([-other])
    plain = advantages("group_process", dataclasses.replace(signals(), token_scores=None), normalize_std=False)
    assert by_rollout(plain) == pytest.approx([0.5, -0.5, 1.0, -1.0])


def test_a_step_worth_0_is_a_step():
    """Right and wrong steps, 1 and 0: of the first group 1, 1, 0, with mean 2/3 and (unbiased) std 1 / sqrt(3)."""
    scores = [1.0, NAN, 1.0, NAN, 0.0, *[NAN] * 5]
    found = advantages(
        "group_process",
        dataclasses.replace(
            signals(),
            rewards=torch.tensor([1.0, 1.0, 0.5, 0.5], dtype=torch.float64),
            token_scores=torch.tensor(scores, dtype=torch.float64),
        ),
        std_eps=1e-9,
    )
    right, wrong = 1 / 3**0.5, -2 / 3**0.5
    assert found[0].tolist() == pytest.approx([2 * right, right, right])
    assert found[1].tolist() == pytest.approx([wrong, wrong])
    assert found[2].tolist() == [0] * 4 and found[3].tolist() == [0]


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - {"remax", "group_process"}))
def test_estimators_without_step_comparison_count_an_unscored_token_as_zero(name):
    draw = torch.Generator().manual_seed(1)
    flat = {key: torch.randn(10, generator=draw, dtype=torch.float64) for key in ("values", "old", "reference")}
    used = signals(**flat)
    without = dataclasses.replace(used, token_scores=used.token_scores.nan_to_num(0.0))
    pairs = list(zip(advantages(name, used), advantages(name, without), strict=True))
    assert all(torch.equal(left, right) and left.isfinite().all() for left, right in pairs)


def rollout_of(scores, mask=None):
    count = 4 if scores is None else len(scores)
    return TrainRollout(
        prompt_ids=np.ones(2, np.int32),
        completion_ids=np.ones(count, np.int32),
        behaviour_logprobs=np.zeros(count, np.float32),
        current=np.ones(count, np.bool_),
        temperature=1.0,
        loss_mask=None if mask is None else np.array(mask),
        token_scores=None if scores is None else np.array(scores, np.float32),
    )


def test_a_zero_marks_a_step_and_nan_does_not():
    def found(*rollouts):
        return [[None if math.isnan(one) else one for one in own.tolist()] for own in step_scores(rollouts)]

    marked, plain, absent = rollout_of([0, NAN, 1]), rollout_of([0, 2, 0]), rollout_of(None)
    assert found(marked, plain, absent) == [[0, None, 1], [0, 2, 0], [None] * 4]
    assert found(plain, absent) == [[0, 2, 0], [None] * 4]
    # Tokens that nobody sampled are not among them.
    assert found(rollout_of([0, NAN, 1], mask=[True, False, True])) == [[0, 1]]


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - {"remax", "gdpo"}))
def test_scores_of_zero_change_no_advantage(name):
    draw = torch.Generator().manual_seed(1)
    flat = {key: torch.randn(10, generator=draw, dtype=torch.float64) for key in ("values", "old", "reference")}
    nothing = torch.zeros(10, dtype=torch.float64)
    zeros = advantages(name, dataclasses.replace(signals(**flat), token_scores=nothing))
    none = advantages(name, dataclasses.replace(signals(**flat), token_scores=None))
    assert all(torch.equal(left, right) for left, right in zip(zeros, none, strict=True))
    told = advantages(name, signals(**flat))
    assert any(not torch.equal(left, right) for left, right in zip(told, none, strict=True))


def with_tokens(group, scores):
    """The group; `scores` maps member -> scores of its tokens."""
    made = tuple(
        dataclasses.replace(score, token_scores=np.array(scores[number], np.float32)) if number in scores else score
        for number, score in enumerate(group.scores)
    )
    return dataclasses.replace(group, scores=made)


def test_right_and_wrong_steps_reach_the_advantages_of_the_step():
    group = scored_group(0, rewards=[1, 1, 1, 1])
    steps = {}
    for member, value in ((0, 1.0), (1, 0.0)):
        steps[member] = each_token(group, member, NAN)
        steps[member][-1] = value
    _, outcome = run(how(name="grpo", advantage="group_process", std_eps=1e-9), groups=[with_tokens(group, steps)])
    assert outcome.advantages == pytest.approx((1 / 2**0.5, -1 / 2**0.5, 0, 0), abs=1e-5)


def each_token(group, member, value):
    return [value] * len(group.group.rollouts[member].token_ids)


def test_they_come_from_the_scored_group_to_the_advantages_of_the_step():
    group = scored_group(0, rewards=[1, 0, 0, 1])
    length = len(group.group.rollouts[1].token_ids)
    scored = with_tokens(group, {1: each_token(group, 1, 0.5)})
    _, outcome = run(how(name="reinforce", whiten=False), groups=[scored])
    to_go = [0.5 * (length - place) for place in range(length)]
    assert outcome.advantages == pytest.approx((1, sum(to_go) / length, 0, 1))
    found = batch_metrics([scored], version=0)
    assert found["rewards/turns/mean"] == pytest.approx(0.5 * length)
    assert found["reward_mean"] == pytest.approx((2 + 0.5 * length) / 4)
    assert "rewards/turns/mean" not in batch_metrics([group], version=0)


def test_unscored_tokens_add_nothing_to_the_metrics():
    group = scored_group(0, rewards=[1, 0, 0, 1])
    scores = each_token(group, 1, NAN)
    scores[0] = 2.0
    assert batch_metrics([with_tokens(group, {1: scores})], version=0)["rewards/turns/weighted"] == 0.5


def test_masked_tokens_take_no_part():
    group = scored_group(0, rewards=[1, 0, 0, 1], longest=9)
    first = group.group.rollouts[0]
    mask = np.arange(len(first.token_ids)) % 2 == 0
    logprobs = np.where(mask, first.logprobs, 0).astype(np.float32)
    masked = dataclasses.replace(first, loss_mask=mask, logprobs=logprobs)
    body = dataclasses.replace(group.group, rollouts=(masked, *group.group.rollouts[1:]))
    scores = np.where(mask, np.arange(len(mask)), 0)
    batch = assemble([with_tokens(dataclasses.replace(group, group=body), {0: scores})], version=0)
    rollout = batch.rollouts[0]
    assert rollout.token_scores[rollout.trained].tolist() == [*range(0, len(mask), 2)]


def test_a_greedy_baselines_tokens_count_in_the_baseline():
    group = with_greedy(scored_group(0, rewards=[1, 0, 0, 0.25]))
    scored = with_tokens(group, {3: each_token(group, 3, 1.0)})
    baseline = 0.25 + len(group.group.rollouts[3].token_ids)
    _, outcome = run(how(name="remax"), groups=[scored])
    assert outcome.advantages == pytest.approx((1 - baseline, -baseline, -baseline))


def test_a_group_whose_tokens_are_scored_is_never_uninformative():
    group = scored_group(0, rewards=[1, 1, 1, 1])
    assert common_score(group) == 1.0
    assert common_score(with_tokens(group, {0: each_token(group, 0, 0.0)})) == 1.0
    assert common_score(with_tokens(group, {0: each_token(group, 0, NAN)})) == 1.0
    assert common_score(with_tokens(group, {0: each_token(group, 0, 0.5)})) is None
    assert Score(rollout_id="r", value=1.0).token_scores is None
