"""What a step does beside the plain policy loss: critic, reference, corrections, several updates, masks."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import masking_utils

from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.algorithms.recipes import recipes
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.keys import CriticTable
from headrace.services.trainer.durability.staleness import UNBOUNDED
from headrace.services.trainer.model.model import Policy, ValueModel
from headrace.services.trainer.step.batch import assemble
from headrace.services.trainer.step.forward import shares_of
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepModels
from headrace.services.trainer.step.step import train_step
from headrace.services.trainer.throughput.flops import training_flops
from headrace.wire.contracts import PolicyVersion, VersionSpan
from tests.unit.services.trainer.builders import scored_group, tiny_classifier, tiny_model

GROUPS = [scored_group(index, rewards=[1, 0, 0.5, 0]) for index in range(4)]


def how(critic=None, **table):
    values = AlgorithmTable.model_validate(table)
    return StepConfig(
        algorithm=build_algorithm(values),
        table=values,
        critic=critic or CriticTable(),
        micro_batch_tokens=60,
        logprob_chunk=5,
        grad_clip=0.0,
    )


class Tap(SingleDevice):
    """Keeps every gradient that the optimizer would have used."""

    def __init__(self, module):
        super().__init__(module, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
        self.gradients = []

    def apply(self, *, learning_rate, grad_clip):
        self.gradients.append({name: weight.grad.clone() for name, weight in self._named.items()})
        return super().apply(learning_rate=learning_rate, grad_clip=grad_clip)


def policy(seed=0):
    return Tap(Policy(tiny_model(seed).double(), forward_dtype=torch.float64))


def value_model(seed=3, outputs=1):
    return Tap(ValueModel(tiny_classifier(seed, outputs=outputs).double(), forward_dtype=torch.float64))


def reference(seed=7):
    module = Policy(tiny_model(seed).double(), forward_dtype=torch.float64)
    return torch.no_grad()(module.forward)


def run(config, *, groups=GROUPS, version=0, critic=None, critic_lr=0.0, used=None, frozen=None, **rates):
    used = used or policy()
    values = Rates(**{"policy": 0.0, "critic": critic_lr, "kl_coef": config.table.kl_coef, **rates})
    models = StepModels(policy=used, critic=critic, reference=frozen)
    return used, train_step(models, assemble(groups, version=version), config, values)


def assert_same(left, right, **tolerance):
    for name in left:
        torch.testing.assert_close(left[name], right[name], **({"rtol": 1e-8, "atol": 1e-12} | tolerance))


def rollout_logprobs(model, prompt, rollout):
    ids = torch.tensor([*prompt.token_ids.tolist(), *rollout.token_ids.tolist()])[None]
    logits = model(ids).logits[0, len(prompt.token_ids) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt.token_ids) :, None]).squeeze(1)


@pytest.mark.parametrize("name", recipes())
def test_every_algorithm_makes_a_finite_step_that_moves_the_policy(name):
    config = how(name=name)
    torch.manual_seed(0)
    used = policy()
    before = {key: weight.clone() for key, weight in used.named_weights()}
    critic = value_model() if config.table.needs_critic else None
    frozen = reference() if config.table.needs_reference else None
    greedy = config.table.greedy_last
    groups = [with_greedy(group) for group in GROUPS] if greedy else GROUPS
    _, outcome = run(config, groups=groups, used=used, critic=critic, frozen=frozen, policy=1e-3)
    assert all(math.isfinite(value) for value in outcome.metrics.values())
    assert outcome.metrics["updates"] == config.updates
    assert len(outcome.advantages) == 4 * (4 - greedy)
    assert any(not torch.equal(before[key], weight) for key, weight in used.named_weights())


def with_greedy(scored, count=1):
    """The same group, the last rollout of it a greedy baseline."""
    sampling = dataclasses.replace(scored.group.prompt.sampling, greedy_last=count)
    prompt = dataclasses.replace(scored.group.prompt, sampling=sampling)
    return dataclasses.replace(scored, group=dataclasses.replace(scored.group, prompt=prompt))


def test_remax_takes_the_greedy_rollouts_reward_off_the_others_and_does_not_train_it():
    groups = [with_greedy(scored_group(0, rewards=[1, 0, 0, 0.25]))]
    _, outcome = run(how(name="remax"), groups=groups)
    assert outcome.advantages == pytest.approx((0.75, -0.25, -0.25))


def test_online_dpo_has_exactly_the_gradient_of_the_dpo_loss():
    used, _ = run(how(name="online_dpo", beta=0.3), frozen=reference())
    model, other = tiny_model(0).double(), tiny_model(7).double()
    losses = []
    for scored in GROUPS:
        prompt = scored.group.prompt
        best, worst = scored.group.rollouts[0], scored.group.rollouts[1]
        margins = [
            rollout_logprobs(of, prompt, best).sum() - rollout_logprobs(of, prompt, worst).sum()
            for of in (model, other)
        ]
        losses.append(-torch.nn.functional.logsigmoid(0.3 * (margins[0] - margins[1].detach())))
    torch.stack(losses).mean().backward()
    expected = {name: weight.grad for name, weight in model.named_parameters()}
    assert_same(used.gradients[0], expected, rtol=1e-6, atol=1e-10)


def test_masked_tokens_serve_only_as_context():
    """A rollout with a masked stretch: its other tokens are scored behind the whole text, and the rest has no loss."""
    scored = scored_group(5, size=2, longest=9, rewards=[1, 0])
    rollouts = []
    for rollout in scored.group.rollouts:
        mask = np.ones(len(rollout.token_ids), np.bool_)
        mask[1:3] = False
        mask[0] = True
        logprobs = np.where(mask, rollout.logprobs, 0).astype(np.float32)
        rollouts.append(dataclasses.replace(rollout, loss_mask=mask, logprobs=logprobs))
    masked = dataclasses.replace(scored, group=dataclasses.replace(scored.group, rollouts=tuple(rollouts)))
    config = how(name="reinforce", whiten=False, correction={"preset": "none"})
    used, outcome = run(config, groups=[masked])
    model = tiny_model(0).double()
    prompt = scored.group.prompt
    kept = torch.from_numpy(rollouts[0].loss_mask)
    counted = sum(int(rollout.loss_mask.sum()) for rollout in rollouts)
    (-rollout_logprobs(model, prompt, rollouts[0])[kept].sum() / counted).backward()
    assert_same(used.gradients[0], {n: w.grad for n, w in model.named_parameters()}, rtol=1e-6, atol=1e-10)
    assert outcome.metrics["lag0_tokens"] == counted


def test_old_tokens_and_truncated_rollouts_are_left_out_of_the_loss_and_of_its_normalizers():
    young, old = scored_group(1, version=3, rewards=[1, 0, 0, 1]), scored_group(2, version=1, rewards=[1, 0, 0, 1])
    aged, _ = run(how(name="dapo", max_token_age=1), groups=[young, old], version=3)
    alone, _ = run(how(name="dapo"), groups=[young], version=3)
    assert_same(aged.gradients[0], alone.gradients[0])
    filtered, outcome = run(how(name="dapo", mask_truncated=True))
    everything, _ = run(how(name="dapo"))
    assert outcome.metrics["kept_share"] < 1
    assert any(not torch.allclose(filtered.gradients[0][n], everything.gradients[0][n]) for n in filtered.gradients[0])


MASKED = [
    ({"name": "dapo"}, {}),
    ({"name": "grpo", "aggregation": "seq-mean-token-mean"}, {}),
    ({"name": "gspo"}, {}),
    (
        {"name": "reinforce", "whiten": False, "kl_in": "reward", "kl_coef": 0.1, "kl_target": 0.0},
        {"entropy_coef": 0.01},
    ),
]


@pytest.mark.parametrize(("table", "rates"), MASKED, ids=[str(table["name"]) for table, _ in MASKED])
def test_a_token_over_the_bound_is_in_no_loss_kl_entropy_or_length(table, rates):
    """Whatever the engine says of it, and whatever the reference: nothing of the step depends on it but the context."""
    groups = [scored_group(1, version=3, rewards=[1, 0, 0, 1]), half_old(scored_group(2, rewards=[1, 0, 0, 1]))]
    config = dataclasses.replace(how(**table), most_lag=1)
    frozen = reference() if config.table.needs_reference else None
    used, outcome = run(config, groups=groups, version=3, frozen=frozen, **rates)
    told = [groups[0], with_old_logprobs(groups[1], -7.0)]
    again, other = run(config, groups=told, version=3, frozen=frozen, **rates)
    assert_same(used.gradients[0], again.gradients[0])
    for key in ("loss", "kl", "entropy", "kept_share"):
        assert outcome.metrics[key] == pytest.approx(other.metrics[key], rel=1e-9)
    # Without the bound the same change is felt.
    free = dataclasses.replace(config, most_lag=UNBOUNDED)
    assert (
        run(free, groups=groups, version=3, frozen=frozen, **rates)[1].metrics["loss"]
        != run(free, groups=told, version=3, frozen=frozen, **rates)[1].metrics["loss"]
    )


def test_masking_by_the_bound_is_masking_by_age_and_rewards_count_whole():
    groups = [scored_group(1, version=3, rewards=[1, 0, 0, 1]), half_old(scored_group(2, rewards=[1, 0, 0, 1]))]
    bound, outcome = run(dataclasses.replace(how(name="dapo"), most_lag=1), groups=groups, version=3)
    aged, _ = run(how(name="dapo", max_token_age=1), groups=groups, version=3)
    assert_same(bound.gradients[0], aged.gradients[0])
    _, free = run(how(name="dapo"), groups=groups, version=3)
    assert outcome.advantages == pytest.approx(free.advantages)
    assert 0 < outcome.metrics["kept_share"] < 1 and not outcome.metrics["skipped"]


def test_a_critic_does_not_learn_from_tokens_over_the_bound():
    young, old = scored_group(1, version=3, rewards=[1, 0, 0, 1]), scored_group(2, version=1, rewards=[0, 0, 0, 1])
    masked, alone = value_model(), value_model()
    config = how(name="ppo")
    run(dataclasses.replace(config, most_lag=1), groups=[young, old], version=3, critic=masked, frozen=reference())
    run(config, groups=[young], version=3, critic=alone, frozen=reference())
    assert_same(masked.gradients[0], alone.gradients[0])


def test_a_batch_whose_tokens_are_all_over_the_bound_is_skipped():
    used, critic = policy(), value_model()
    before = {name: weight.clone() for name, weight in [*used.named_weights(), *critic.named_weights()]}
    config = dataclasses.replace(how(name="ppo"), most_lag=1)
    _, outcome = run(config, version=2, used=used, critic=critic, critic_lr=1.0, policy=1.0, frozen=reference())
    assert outcome.metrics["skipped"] == 1 and outcome.metrics["kept_share"] == 0
    after = dict([*used.named_weights(), *critic.named_weights()])
    assert all(torch.equal(before[name], weight) for name, weight in after.items())


def half_old(scored):
    """The first half of each rollout is of version 0, the rest of version 3."""
    rollouts = []
    for rollout in scored.group.rollouts:
        half, end = max(len(rollout.token_ids) // 2, 1), len(rollout.token_ids)
        parts = [(0, half, 0), (half, end, 3)] if half < end else [(0, end, 0)]
        spans = tuple(
            VersionSpan(start=start, end=stop, version=PolicyVersion(incarnation=1, version=at), weights_digest="d")
            for start, stop, at in parts
        )
        rollouts.append(dataclasses.replace(rollout, spans=spans))
    return dataclasses.replace(scored, group=dataclasses.replace(scored.group, rollouts=tuple(rollouts)))


def with_old_logprobs(scored, value):
    """The same group, had the engine said so of all its tokens of version 0."""
    rollouts = []
    for rollout in scored.group.rollouts:
        logprobs = rollout.logprobs.copy()
        for span in rollout.spans:
            if span.version.version == 0:
                logprobs[span.start : span.end] = value
        rollouts.append(dataclasses.replace(rollout, logprobs=logprobs))
    return dataclasses.replace(scored, group=dataclasses.replace(scored.group, rollouts=tuple(rollouts)))


def test_a_batch_without_a_trained_token_changes_nothing():
    used = policy()
    before = {name: weight.clone() for name, weight in used.named_weights()}
    run(how(name="dapo", max_token_age=0), version=2, used=used, policy=1.0)
    assert not used.gradients
    assert all(torch.equal(before[name], weight) for name, weight in used.named_weights())


def test_epochs_and_minibatches_give_as_many_updates_and_each_group_once_an_epoch():
    config = how(epochs=2, minibatches=2, anchor="proximal")
    used, outcome = run(config)
    assert (len(used.gradients), outcome.metrics["updates"]) == (4, 4.0)
    whole, _ = run(how(anchor="proximal"))
    for first in (0, 2):
        halves = {
            name: (used.gradients[first][name] + used.gradients[first + 1][name]) / 2 for name in whole.gradients[0]
        }
        assert_same(halves, whole.gradients[0])


def test_the_proximal_anchor_is_the_policy_at_batch_time_not_the_engine():
    """With ratios of 1 nothing is clipped, whatever the engine said."""
    _, bypass = run(how(clip_low=0.01, clip_high=0.01))
    _, proximal = run(how(clip_low=0.01, clip_high=0.01, anchor="proximal"))
    assert bypass.metrics["clip_fraction"] > 0.1
    assert proximal.metrics["clip_fraction"] == 0


def test_a_correction_multiplies_each_tokens_gradient_by_its_capped_ratio():
    table = {"anchor": "proximal", "policy_loss": "policy_gradient", "aggregation": "token-sum"}
    used, outcome = run(how(**table, correction={"preset": "token_tis", "cap": 0.9}))
    model = tiny_model(0).double()
    total = torch.zeros((), dtype=torch.float64)
    weights = []
    for scored in GROUPS:
        rewards = torch.tensor([score.value for score in scored.scores], dtype=torch.float64)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for rollout, advantage in zip(scored.group.rollouts, advantages, strict=True):
            logprobs = rollout_logprobs(model, scored.group.prompt, rollout)
            weight = (logprobs.detach() - torch.from_numpy(rollout.logprobs)).exp().clamp(max=0.9)
            weights.append(weight)
            total = total - (weight * advantage * logprobs).sum()
    total.backward()
    assert_same(used.gradients[0], {n: w.grad for n, w in model.named_parameters()}, rtol=1e-6, atol=1e-9)
    assert outcome.metrics["correction_weight"] == pytest.approx(float(torch.cat(weights).mean()), rel=1e-6)


def test_a_correction_that_rejects_everything_leaves_no_gradient():
    band = {"reject": "geometric", "reject_low": 5.0, "reject_high": 6.0}
    used, outcome = run(how(anchor="proximal", correction=band))
    assert outcome.metrics["rejected_share"] == 1
    assert all(float(gradient.abs().max()) == 0 for gradient in used.gradients[0].values())


def test_the_kl_in_the_reward_lowers_the_advantage_of_tokens_that_left_the_reference():
    config = how(name="reinforce_pp", whiten=False, kl_coef=0.5)
    _, outcome = run(config, frozen=reference())
    _, without = run(how(name="reinforce_pp", whiten=False, kl_coef=0.0))
    other = tiny_model(7).double()
    prompt, rollout = GROUPS[0].group.prompt, GROUPS[0].group.rollouts[0]
    with torch.no_grad():
        apart = torch.from_numpy(rollout.logprobs).double() - rollout_logprobs(other, prompt, rollout)
    to_go = apart.flip(0).cumsum(0).flip(0)
    assert outcome.advantages[0] == pytest.approx(without.advantages[0] - 0.5 * float(to_go.mean()), rel=1e-6)
    assert outcome.shaping["kl"][0] == pytest.approx(-0.5 * float(apart.sum()), rel=1e-6)
    # GRPO takes the same sums off whole rewards, before the baseline.
    _, outcome = run(how(kl_in="reward", kl_estimator="k1", kl_coef=0.5, normalize_std=False), frozen=reference())
    left = np.array([score.value for score in GROUPS[0].scores]) + outcome.shaping["kl"][: len(GROUPS[0].scores)]
    assert outcome.shaping["kl"][0] == pytest.approx(-0.5 * float(apart.sum()), rel=1e-6)
    assert outcome.advantages[: len(left)] == pytest.approx(left - left.mean(), rel=1e-6)


@pytest.mark.parametrize("quantiles", [1, 4])
def test_a_huber_bound_bounds_what_an_error_of_the_critic_costs(quantiles):
    def loss(bound):
        table = CriticTable(value_clip=0.0, quantiles=quantiles, huber_bound=bound)
        config = how(name="ppo", kl_coef=0.0, minibatches=1, critic=table)
        return run(config, critic=value_model(outputs=quantiles))[1].metrics["value_loss"]

    if quantiles == 1:
        # Of a bound beyond all errors it is the square; of a tiny one, bound |error|.
        assert loss(1e6) == pytest.approx(loss(0.0), rel=1e-9)
        assert loss(1e-6) / 1e-6 == pytest.approx(loss(1e-7) / 1e-7, rel=1e-4)
    else:
        assert loss(0.0) == loss(1.0) < loss(1e-3)


def test_the_critic_learns_the_return_and_the_policy_is_left_alone_while_it_is_pretrained():
    config = how(name="ppo", kl_coef=0.0, minibatches=1, critic=CriticTable(epochs=4, value_clip=0.0))
    used, critic = policy(), value_model()
    losses = []
    for _ in range(30):
        _, outcome = run(
            config, used=used, critic=critic, policy=1e-2, critic_lr=3e-3, policy_frozen=True, pretraining=True
        )
        losses.append(outcome.metrics["value_loss"])
    assert losses[-1] < losses[0] / 3
    assert outcome.metrics["explained_variance"] > 0.3
    assert not used.gradients
    assert "clip_fraction" not in outcome.metrics
    assert outcome.metrics["loss"] == 0.0  # Every step tells it.
    assert "logprob_gap_max" not in outcome.metrics


def test_a_quantile_critic_spreads_and_its_spread_weighs_advantages():
    critic = CriticTable(quantiles=5, spread_weight=2.0, value_clip=0.0)
    _, weighed = run(how(name="ppo", kl_coef=0.0, critic=critic), critic=value_model(outputs=5))
    plain = CriticTable(quantiles=5, value_clip=0.0)
    _, even = run(how(name="ppo", kl_coef=0.0, critic=plain), critic=value_model(outputs=5))
    assert weighed.advantages != even.advantages
    assert weighed.metrics["value_loss"] == pytest.approx(even.metrics["value_loss"])


def test_the_likelihood_of_right_rollouts_and_the_entropy_bonus_enter_the_loss():
    base = {"name": "dapo"}
    _, plain = run(how(**base))
    _, likely = run(how(**base, positive_nll_coef=0.1))
    nll = likely.metrics["positive_nll_loss"]
    assert nll > 0
    assert likely.metrics["loss"] == pytest.approx(plain.metrics["loss"] + 0.1 * nll)
    _, bonus = run(how(**base, entropy_coef=0.2), entropy_coef=0.2)
    assert bonus.metrics["loss"] == pytest.approx(plain.metrics["loss"] - 0.2 * plain.metrics["entropy"])


def test_pretraining_examples_add_their_mean_loss():
    batch = assemble([scored_group(9)], version=0)
    config = dataclasses.replace(how(name="dapo", ptx_coef=0.5, ptx_data=Path("x")), ptx=batch.rollouts[:1])
    used, outcome = run(config)
    plain, _ = run(how(name="dapo"))
    model = tiny_model(0).double()
    group = scored_group(9).group
    nll = -rollout_logprobs(model, group.prompt, group.rollouts[0]).mean()
    (0.5 * nll).backward()
    assert outcome.metrics["ptx_loss"] == pytest.approx(0.5 * nll.item(), rel=1e-6)
    expected = {n: plain.gradients[0][n] + w.grad for n, w in model.named_parameters()}
    assert_same(used.gradients[0], expected, rtol=1e-6, atol=1e-10)


def test_the_gap_to_the_engine_is_reported_by_version_lag():
    groups = [scored_group(1, version=3), scored_group(2, version=1)]
    _, outcome = run(how(name="dapo"), groups=groups, version=3)
    found = outcome.metrics
    tokens = [sum(len(rollout.token_ids) for rollout in scored.group.rollouts) for scored in groups]
    assert [found["lag0_tokens"], found["lag2_tokens"]] == tokens
    both = found["lag0_kl_k1"] * tokens[0] + found["lag2_kl_k1"] * tokens[1]
    assert found["mismatch_kl_k1"] == pytest.approx(both / sum(tokens))
    assert found["mismatch_gap_max"] == max(found["lag0_gap_max"], found["lag2_gap_max"])
    assert 0 < found["mismatch_ess"] <= 1


def test_overlong_rollouts_lose_reward_by_the_paper():
    scored = scored_group(3, longest=9, rewards=[1, 1, 1, 1])
    _, outcome = run(how(name="reinforce", whiten=False, overlong_buffer=4), groups=[scored])
    lengths = [len(rollout.token_ids) for rollout in scored.group.rollouts]
    assert outcome.advantages == pytest.approx([1 - max(0, length - 5) / 4 for length in lengths])
    assert outcome.shaping == {"overlong_buffer": pytest.approx([advantage - 1 for advantage in outcome.advantages])}


def test_a_sequence_loss_ignores_tokens_over_the_bound():
    """GSPO on rollouts whose first tokens are too old: as if they had been context."""
    scored = scored_group(1, version=3, longest=9, rewards=[1, 0, 0, 1])
    aged, masked = [], []
    for rollout in scored.group.rollouts:
        (span,) = rollout.spans
        cut = min(2, span.end - 1)
        old = dataclasses.replace(span, end=cut, version=dataclasses.replace(span.version, version=0))
        spans = (old, dataclasses.replace(span, start=cut)) if cut else (span,)
        mask = np.arange(span.end) >= cut
        logprobs = np.where(mask, rollout.logprobs, 0).astype(np.float32)
        aged.append(dataclasses.replace(rollout, spans=spans))
        masked.append(dataclasses.replace(rollout, loss_mask=mask, logprobs=logprobs))
    gradients = []
    for rollouts, table in ((aged, {"max_token_age": 0}), (masked, {})):
        group = dataclasses.replace(scored.group, rollouts=tuple(rollouts))
        used, _ = run(how(name="gspo", **table), groups=[dataclasses.replace(scored, group=group)], version=3)
        gradients.append(used.gradients[0])
    assert_same(*gradients)


def test_overlong_greedy_baselines_are_shaped_like_the_others():
    scored = with_greedy(scored_group(3, longest=9, rewards=[1, 1, 1, 1]))
    _, outcome = run(how(name="remax", overlong_buffer=4), groups=[scored])
    penalties = [max(0, len(rollout.token_ids) - 5) / 4 for rollout in scored.group.rollouts]
    assert outcome.advantages == pytest.approx([penalties[3] - penalty for penalty in penalties[:3]])


def test_a_gap_that_is_not_a_number_is_reported():
    logprobs = np.full(9, np.nan, np.float32)
    honest = scored_group(0)
    batch = assemble([honest], version=0)
    lying = dataclasses.replace(batch.rollouts[0], behaviour_logprobs=logprobs[: len(batch.rollouts[0].completion_ids)])
    batch = dataclasses.replace(batch, rollouts=(lying, *batch.rollouts[1:]))
    outcome = train_step(StepModels(policy=policy()), batch, how(), Rates(policy=0.0))
    assert math.isnan(outcome.metrics["logprob_gap_max"])


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 2)])
def test_model_flops_cover_every_update_of_the_policy_only(epochs, minibatches):
    used = policy()
    config = how(name="ppo", epochs=epochs, minibatches=minibatches)
    _, outcome = run(config, used=used, critic=value_model(), frozen=reference(), policy=1e-3)
    rollouts = assemble(GROUPS, version=0).rollouts
    rows = [(rollout.row_tokens, len(rollout.completion_ids)) for rollout in rollouts]
    assert outcome.metrics["model_flops"] == epochs * training_flops(used.module.compute, rows) > 0
    assert outcome.metrics["trained_tokens"] == sum(len(rollout.completion_ids) for rollout in rollouts)


def test_masked_and_stale_tokens_are_not_counted_as_trained():
    config = dataclasses.replace(how(), most_lag=1)
    _, outcome = run(config, groups=[half_old(scored_group(0, rewards=[1, 0, 0, 1]))], version=3)
    batch = assemble([half_old(scored_group(0, rewards=[1, 0, 0, 1]))], version=3)
    young = sum(int((rollout.lag <= 1).sum()) for rollout in batch.rollouts)
    assert 0 < young < sum(len(rollout.completion_ids) for rollout in batch.rollouts)
    assert outcome.metrics["trained_tokens"] == young


def test_a_step_of_the_critic_alone_trains_no_token_of_the_policy():
    _, outcome = run(how(name="ppo"), critic=value_model(), frozen=reference(), policy_frozen=True)
    assert (outcome.metrics["trained_tokens"], outcome.metrics["model_flops"]) == (0, 0)


class ScalarReads(TorchDispatchMode):
    """Counts the values that the host reads, for which it would wait for a GPU."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("more", [{"kl_in": "loss", "kl_coef": 0.1}, {"correction": {"weight": "token"}}])
def test_the_number_of_scalars_read_does_not_grow_with_the_micro_batches(
    more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # transformers reads one in each forward pass, to learn whether rows are packed.
    monkeypatch.setattr(masking_utils, "find_packed_sequence_indices", lambda positions: None)
    counts, passes = [], []
    for budget in (100_000, 30):
        config = dataclasses.replace(how(advantage="gae", anchor="proximal", **more), micro_batch_tokens=budget)
        used, critic, frozen = policy(), value_model(), reference() if "kl_in" in more else None
        with ScalarReads() as reads:
            run(config, used=used, critic=critic, frozen=frozen)
        counts.append(reads.count)
        passes.append(len(shares_of(assemble(GROUPS, version=0).rollouts, used, token_budget=budget)))
    assert passes[1] > 2 * passes[0] and counts[0] == counts[1], (passes, counts)
