"""A rollout that nobody could score has never been, to the step: whatever the algorithm, and in a replay too."""

import dataclasses

import numpy as np
import pytest
import torch

from headrace.services.trainer.algorithms.algorithm import Signals
from headrace.services.trainer.algorithms.recipes import recipes
from headrace.services.trainer.durability.ledger import Arrival, Ledger, common_score
from headrace.services.trainer.step.batch import assemble, batch_metrics
from headrace.services.trainer.step.inputs import Rates, StepModels
from headrace.services.trainer.step.step import train_step
from headrace.wire.contracts import Message, Score, decode, encode
from tests import builders
from tests.unit.services.trainer.builders import scored_group
from tests.unit.services.trainer.durability.test_ledger import ready, scored
from tests.unit.services.trainer.step.test_updates import GROUPS, how, policy, reference, run, value_model, with_greedy


def without_score(group, *members, reason="the judge hung"):
    """The same group; these members abstain."""
    scores = [
        Score(rollout_id=score.rollout_id, value=None, reason=reason) if number in members else score
        for number, score in enumerate(group.scores)
    ]
    return dataclasses.replace(group, scores=tuple(scores))


def without_rollout(group, *members):
    """The same group, had these members never been asked for."""
    kept = [number for number in range(len(group.scores)) if number not in members]
    prompt = dataclasses.replace(group.group.prompt, group_size=len(kept))
    body = dataclasses.replace(group.group, prompt=prompt, rollouts=tuple(group.group.rollouts[n] for n in kept))
    return dataclasses.replace(group, group=body, scores=tuple(group.scores[number] for number in kept))


def step_of(groups, name, **table):
    """Gradients of policy and critic, and what the step told, of one whole step."""
    config = how(name=name, **table)
    used = policy()
    critic = value_model() if config.table.needs_critic else None
    frozen = reference() if config.table.needs_reference else None
    rates = Rates(policy=1e-3, critic=1e-3, kl_coef=config.table.kl_coef)
    models = StepModels(policy=used, critic=critic, reference=frozen)
    outcome = train_step(models, assemble(groups, version=0), config, rates)
    return used.gradients, [] if critic is None else critic.gradients, outcome


FULL = [scored_group(index, rewards=[1, 0, 0.5, 0]) for index in range(3)]
MEMBERS = ((1,), (), (0, 3))
"""Which rollouts of each group abstain: groups of 3, 4 and 2 are left."""


@pytest.mark.parametrize("name", recipes())
def test_a_step_with_abstained_rollouts_equals_the_step_without_them(name):
    full, members = FULL, MEMBERS
    if how(name=name).table.greedy_last:
        full, members = [with_greedy(group) for group in FULL], ((1,), (), (0,))
    abstained = [without_score(group, *own) for group, own in zip(full, members, strict=True)]
    absent = [without_rollout(group, *own) for group, own in zip(full, members, strict=True)]
    *gradients, outcome = step_of(abstained, name)
    *expected, expected_outcome = step_of(absent, name)
    assert (outcome.metrics, outcome.advantages) == (expected_outcome.metrics, expected_outcome.advantages)
    told = [part.tolist() for part in outcome.token_advantages]
    assert told == [part.tolist() for part in expected_outcome.token_advantages]
    # TRPO's step is not the optimizer's.
    assert gradients[0] or name == "trpo"
    for mine, other in zip(gradients, expected, strict=True):
        for left, right in zip(mine, other, strict=True):
            assert all(torch.equal(left[key], right[key]) for key in left)
    *_, whole = step_of(full, name)
    assert whole.advantages != outcome.advantages


def test_online_pairs_weigh_the_same_in_groups_of_different_size():
    sizes, lengths = (4, 2), torch.tensor([2, 1, 3, 1, 2, 2])
    nothing = torch.zeros(int(lengths.sum()), dtype=torch.float64)
    signals = Signals(
        rewards=torch.tensor([1.0, 0.5, 0.0, 0.5, 1.0, 0.0], dtype=torch.float64),
        group_sizes=sizes,
        baselines=None,
        lengths=lengths,
        truncated=torch.zeros(6, dtype=torch.bool),
        old=nothing,
        reference=nothing,
    )
    found = how(name="online_dpo", beta=0.4).algorithm.estimate(signals).advantages
    # beta sigmoid(0), times rollouts a group: divided by all 6 rollouts it is the mean over 2 groups.
    pull = 0.4 * 0.5 * 3
    firsts = [float(part[0]) for part in torch.split(found, lengths.tolist())]
    assert firsts == pytest.approx([pull, 0, -pull, 0, pull, -pull])


def test_a_journaled_abstention_gives_the_same_batch_again():
    group = without_score(FULL[0], 2)
    again = decode(encode(Message(header=builders.header(0), body=group))).body
    assert [score.value for score in again.scores] == [1.0, 0.0, None, 0.0]
    left, right = assemble([group], version=0), assemble([again], version=0)
    assert [reward.tolist() for reward in left.rewards] == [reward.tolist() for reward in right.rewards] == [[1, 0, 0]]
    for mine, other in zip(left.rollouts, right.rollouts, strict=True):
        assert mine.completion_ids.tolist() == other.completion_ids.tolist()


def test_abstentions_are_counted_and_are_in_no_mean():
    groups = [without_score(scored_group(0, rewards=[1, 0, 1, 1]), 1), scored_group(1, rewards=[0, 0, 1, 0])]
    found = batch_metrics(groups, version=0)
    assert (found["abstained"], found["rollouts"]) == (1, 7)
    assert found["reward_mean"] == pytest.approx(4 / 7)
    lengths = [len(r.token_ids) for group in groups for r in group.group.rollouts]
    assert found["completion_tokens"] == sum(lengths) - lengths[1]
    assert batch_metrics(FULL, version=0)["abstained"] == 0


def test_a_greedy_baseline_that_abstains_makes_a_group_that_cannot_be_trained():
    group = with_greedy(scored_group(0, rewards=[1, 0, 0, 0.25]))
    assert Ledger(batch_groups=1, max_staleness=0).take(ready(0, scored=group)) is Arrival.KEEP
    lost = without_score(group, 3)
    assert Ledger(batch_groups=1, max_staleness=0).take(ready(0, scored=lost)) is Arrival.ABSTAINED


def test_the_ledger_keeps_no_group_with_fewer_than_two_scores():
    ledger = Ledger(batch_groups=1, max_staleness=0)
    assert ledger.take(ready(0, scored=scored(1.0, None, None))) is Arrival.ABSTAINED
    assert ledger.take(ready(0, scored=scored(None, None, None))) is Arrival.ABSTAINED
    assert ledger.ready == ledger.discarded == 0
    assert ledger.take(ready(0, scored=scored(1.0, None, 0.0))) is Arrival.KEEP
    assert ledger.take(ready(1, scored=scored(1.0))) is Arrival.KEEP  # No more were asked for.


def test_dynamic_sampling_considers_only_scored_rollouts():
    assert common_score(scored(1.0, None, 1.0)) == 1.0
    assert common_score(scored(1.0, None, 0.0)) is None
    assert common_score(scored(1.0, None)) is None


def test_gdpo_reads_the_components_of_a_score_and_what_the_trainer_adds():
    values = {"right": [1.0, 0.0, 0.0, 1.0], "brief": [7.0, 7.0, None, 1.0]}
    weights = {"right": 1.0, "brief": 0.5, "shown": 0.0}
    scores = []
    for place, score in enumerate(GROUPS[0].scores):
        components = {name: own[place] for name, own in values.items() if own[place] is not None}
        total = sum(weights[name] * value for name, value in components.items())
        scores.append(dataclasses.replace(score, value=total, components=components | {"shown": 9.0}, weights=weights))
    group = dataclasses.replace(GROUPS[0], scores=tuple(scores))
    _, outcome = run(how(name="gdpo", overlong_buffer=4), groups=[group])
    columns = (
        np.array(values["right"]),
        np.array(values["brief"], float),
        np.array(outcome.shaping["overlong_buffer"]),
    )
    summed = np.zeros(4)
    for weight, own in zip((1.0, 0.5, 1.0), columns, strict=True):
        summed += weight * np.nan_to_num((own - np.nanmean(own)) / (np.nanstd(own, ddof=1) + 1e-6))
    assert np.ptp(columns[2]) > 0
    assert outcome.advantages == pytest.approx((summed - summed.mean()) / (summed.std(ddof=1) + 1e-6), rel=1e-9)
