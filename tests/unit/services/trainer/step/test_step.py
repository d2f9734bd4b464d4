import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.algorithms.names import AGGREGATIONS
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.keys import CriticTable
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.step.batch import assemble, batch_metrics
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepModels
from headrace.services.trainer.step.step import StepInterruptedError
from headrace.services.trainer.step.step import train_step as step
from headrace.wire.contracts import IdLists
from tests.unit.services.trainer.builders import scored_group, tiny_folder, tiny_model

GROUPS = [scored_group(index, temperature=0.5 + 0.25 * index) for index in range(4)]


def config(*, micro_batch_tokens=10_000, critic=None, **table):
    values = AlgorithmTable.model_validate({"clip_high": 0.28, "aggregation": "token-mean", **table})
    return StepConfig(
        algorithm=build_algorithm(values),
        table=values,
        critic=CriticTable() if critic is None else critic,
        micro_batch_tokens=micro_batch_tokens,
        logprob_chunk=5,
        grad_clip=0.0,
    )


def train_step(used, batch, how, *, learning_rate, reference=None, critic=None, interrupted=lambda: False, **rates):
    models = StepModels(policy=used, critic=critic, reference=reference)
    values = Rates(policy=learning_rate, kl_coef=how.table.kl_coef, **rates)
    return step(models, batch, how, values, interrupted=interrupted)


def backend(seed=0, dtype=torch.float32, **kwargs):
    policy = Policy(tiny_model(seed, **kwargs), forward_dtype=dtype)
    return SingleDevice(policy, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)


class GradientTap(SingleDevice):
    """Keeps the gradient that the optimizer would have used."""

    def apply(self, *, learning_rate, grad_clip):
        self.gradient = {name: weight.grad.clone() for name, weight in self.module.named_weights()}
        return super().apply(learning_rate=learning_rate, grad_clip=grad_clip)


def gradient_and_loss(used, *, groups=GROUPS, reference=None, seed=0):
    policy = Policy(tiny_model(seed).double(), forward_dtype=torch.float64)
    tap = GradientTap(policy, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    outcome = train_step(tap, assemble(groups, version=0), used, learning_rate=0.0, reference=reference)
    return tap.gradient, outcome.metrics["loss"]


def plain_loss(model, groups, mode, *, clip_low=0.2, clip_high=0.28, kl_coef=0.0, reference=None):
    """The slow, obvious version: one rollout at a time through the whole model, as the papers write it."""
    terms, lengths = [], []
    for scored in groups:
        rewards = torch.tensor([score.value for score in scored.scores], dtype=torch.float64)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for rollout, advantage in zip(scored.group.rollouts, advantages, strict=True):
            prompt = scored.group.prompt
            ids = torch.tensor([*prompt.token_ids.tolist(), *rollout.token_ids.tolist()])[None]

            def logprobs(of, ids=ids, prompt=prompt):
                logits = of(ids).logits[0, len(prompt.token_ids) - 1 : -1] / prompt.sampling.temperature
                chosen = ids[0, len(prompt.token_ids) :, None]
                return torch.log_softmax(logits, -1).gather(1, chosen).squeeze(1)

            new = logprobs(model)
            ratio = (new - torch.from_numpy(rollout.logprobs)).exp()
            loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
            if kl_coef:
                difference = new - logprobs(reference).detach()
                loss = loss + kl_coef * ((-difference).exp() - 1 + difference)
            terms.append(loss)
            lengths.append(len(loss))
    total = torch.cat(terms).sum()
    match mode:
        case "token-mean":
            return total / sum(lengths)
        case "token-sum":
            return total
        case "seq-mean-token-mean":
            return torch.stack([term.mean() for term in terms]).mean()
        case "seq-mean-token-sum":
            return total / len(terms)
        case "seq-mean-token-sum-norm":
            return total / len(terms) / 9


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_loss_and_gradient_equal_a_plain_hugging_face_implementation(mode):
    gradient, loss = gradient_and_loss(config(aggregation=mode))
    model = tiny_model().double()
    expected = plain_loss(model, GROUPS, mode)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(gradient[name], weight.grad, rtol=1e-5, atol=1e-9)


def test_the_kl_of_a_cut_off_draw_is_over_the_whole_vocabulary():
    """Every token from itself alone: its logprob is 0 without a gradient, the KL is as without a cut."""

    def alone(rollout):
        return replace(rollout, kept=IdLists.of(np.split(rollout.token_ids, len(rollout.token_ids))))

    groups = [replace(one, group=replace(one.group, rollouts=tuple(map(alone, one.group.rollouts)))) for one in GROUPS]
    other = tiny_model(seed=7).double()
    reference = Policy(other, forward_dtype=torch.float64)
    wanted, only_kl = (
        gradient_and_loss(config(kl_coef=coef), groups=groups, reference=reference)[0] for coef in (0.3, 0.0)
    )
    assert not any(found.any() for found in only_kl.values())
    whole = [gradient_and_loss(config(kl_coef=coef), reference=reference)[0] for coef in (0.3, 0.0)]
    for name, found in wanted.items():
        torch.testing.assert_close(found, whole[0][name] - whole[1][name], rtol=1e-6, atol=1e-7)


def test_the_kl_to_a_reference_is_part_of_the_loss():
    other = tiny_model(seed=7).double()
    reference = Policy(other, forward_dtype=torch.float64)
    _, loss = gradient_and_loss(config(kl_coef=0.3), reference=reference)
    expected = plain_loss(tiny_model().double(), GROUPS, "token-mean", kl_coef=0.3, reference=other)
    assert loss == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("budget", [1, 25, 60])
def test_the_whole_steps_gradient_is_the_same_for_any_micro_batch_size(mode, budget):
    whole, loss = gradient_and_loss(config(aggregation=mode))
    split, split_loss = gradient_and_loss(config(aggregation=mode, micro_batch_tokens=budget))
    assert split_loss == pytest.approx(loss, rel=1e-9)
    for name in whole:
        torch.testing.assert_close(split[name], whole[name], rtol=1e-7, atol=1e-11)


def test_the_logprob_gap_covers_only_tokens_of_the_current_version():
    model = tiny_model()
    current, old = scored_group(1, version=3), scored_group(2, version=2)
    with torch.no_grad():
        exact = []
        for rollout in current.group.rollouts:
            ids = torch.tensor([*current.group.prompt.token_ids.tolist(), *rollout.token_ids.tolist()])[None]
            logits = model(ids).logits[0, len(current.group.prompt.token_ids) - 1 : -1]
            exact.append(
                torch.log_softmax(logits, -1).gather(1, torch.tensor(rollout.token_ids).long()[:, None]).squeeze(1)
            )
    honest = scored_group(1, version=3, logprobs=[lp.numpy() for lp in exact])
    outcome = train_step(backend(), assemble([honest, old], version=3), config(), learning_rate=0.0)
    assert outcome.metrics["logprob_gap_max"] < 1e-5
    assert outcome.metrics["logprob_gap_tokens"] == sum(len(r.token_ids) for r in honest.group.rollouts)
    lying = train_step(backend(), assemble([current, old], version=3), config(), learning_rate=0.0)
    assert lying.metrics["logprob_gap_max"] > 1e-3
    stale = train_step(backend(), assemble([old], version=3), config(), learning_rate=0.0)
    assert stale.metrics["logprob_gap_tokens"] == 0
    assert not {"logprob_gap_max", "logprob_gap_mean"} & stale.metrics.keys(), "nothing was compared"


def test_one_step_raises_the_probability_of_rewarded_rollouts():
    groups = [scored_group(0, rewards=[1, 0, 0, 0])]
    used = backend()
    before = train_step(used, assemble(groups, version=0), config(), learning_rate=1e-2)
    after = train_step(used, assemble(groups, version=0), config(), learning_rate=1e-2)
    assert after.metrics["loss"] < before.metrics["loss"]
    assert before.advantages[0] > 0 > before.advantages[1]


def test_two_identical_steps_end_in_identical_bits():
    states = []
    for _ in range(2):
        used = backend()
        for _ in range(2):
            train_step(used, assemble(GROUPS, version=0), config(micro_batch_tokens=40), learning_rate=1e-3)
        states.append(dict(used.named_weights()))
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_an_interrupted_step_changes_nothing():
    used = backend()
    before = {name: weight.clone() for name, weight in used.named_weights()}
    calls = iter([False, True])
    with pytest.raises(StepInterruptedError):
        train_step(
            used,
            assemble(GROUPS, version=0),
            config(micro_batch_tokens=20),
            learning_rate=1.0,
            interrupted=lambda: next(calls),
        )
    assert all(torch.equal(before[name], weight) for name, weight in used.named_weights())
    assert all(weight.grad is None for _, weight in used.module.named_weights())


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone():
    used = backend()
    with torch.no_grad():
        next(iter(used.module.named_weights()))[1][5] = math.nan
    before = {name: weight.clone() for name, weight in used.named_weights()}
    outcome = train_step(used, assemble(GROUPS, version=0), config(), learning_rate=1.0)
    assert outcome.metrics["skipped"] == 1.0
    assert all(torch.equal(before[n].nan_to_num(), w.nan_to_num()) for n, w in used.named_weights())


def test_a_bfloat16_forward_keeps_float32_master_weights_and_a_similar_loss():
    low = backend(dtype=torch.bfloat16)
    outcome = train_step(low, assemble(GROUPS, version=0), config(), learning_rate=1e-4)
    exact = train_step(backend(), assemble(GROUPS, version=0), config(), learning_rate=1e-4)
    assert all(weight.dtype == torch.float32 for _, weight in low.named_weights())
    assert outcome.metrics["loss"] == pytest.approx(exact.metrics["loss"], abs=0.02)


def test_untied_heads_are_trained_too():
    used = backend(tied=False)
    before = {name: weight.clone() for name, weight in used.named_weights()}
    train_step(used, assemble(GROUPS, version=0), config(), learning_rate=1e-2)
    assert "lm_head.weight" in before
    assert all(not torch.equal(before[name], weight) for name, weight in used.named_weights())


def test_batch_metrics_by_hand():
    groups = [scored_group(0, rewards=[1, 0, 0, 1], version=3), scored_group(1, rewards=[0, 0, 0, 0], version=2)]
    found = batch_metrics(groups, version=3)
    assert (found["groups"], found["rollouts"], found["staleness_max"], found["staleness_mean"]) == (2, 8, 1, 0.5)
    assert found["token_lag_max"] == found["token_lag_p95"] == 1
    old = sum(len(r.token_ids) for r in groups[1].group.rollouts)
    assert found["token_lag_mean"] == pytest.approx(old / found["completion_tokens"])
    assert found["reward_mean"] == 0.25
    assert found["prompt_tokens"] == 4 * 3 + 4 * 4
    assert found["completion_tokens"] == sum(len(r.token_ids) for g in groups for r in g.group.rollouts)
    assert found["reward_no_answer_share"] == 0
    first, second, *others = groups[0].scores
    unread = (replace(first, answer_start=None), replace(second, components={"math.no_answer": 1.0}), *others)
    assert batch_metrics([replace(groups[0], scores=unread)], version=3)["reward_no_answer_share"] == 0.5


def test_gradient_checkpointing_changes_no_gradient(tmp_path):
    gradients = []
    for checkpointing in (False, True):
        policy = load_policy(
            tiny_folder(tmp_path / "model"),
            device="cpu",
            forward_dtype=torch.float32,
            gradient_checkpointing=checkpointing,
        )
        tap = GradientTap(policy, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
        train_step(tap, assemble(GROUPS, version=0), config(), learning_rate=0.0)
        gradients.append(tap.gradient)
    for name in gradients[0]:
        torch.testing.assert_close(gradients[0][name], gradients[1][name])
