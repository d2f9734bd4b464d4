"""TRPO's step: that of a dense solve in float64, and within its bound for every model."""

import dataclasses
import math

import pytest
import torch

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.step.batch import assemble, micro_batch
from headrace.services.trainer.step.inputs import Rates, StepModels
from headrace.services.trainer.step.step import train_step
from tests.unit.services.trainer.builders import scored_group, tiny_model
from tests.unit.services.trainer.step.test_updates import how

GROUPS = [scored_group(0, rewards=[1, 0, 0.5, 0])]
DELTA, DAMPING = 1e-3, 0.05


def backend(seed, dtype=torch.float64):
    return SingleDevice(Policy(tiny_model(seed, hidden=8).to(dtype), forward_dtype=dtype))


def flat(tensors):
    return torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])


def weights_of(policy):
    return flat(weight for _, weight in policy.named_weights())


def step(policy, *, micro_batch_tokens=60, **table):
    table = {"name": "trpo", "trust_kl": DELTA, "trust_damping": DAMPING} | table
    batch = assemble(GROUPS, version=0)
    config = dataclasses.replace(how(**table), micro_batch_tokens=micro_batch_tokens)
    return train_step(StepModels(policy=policy), batch, config, Rates(policy=0.0)).metrics


def logprobs(policy, micro):
    """[tokens, vocab], computed by transformers itself."""
    logits = policy.module.model(input_ids=micro.token_ids).logits[micro.rows, micro.places]
    return (logits / micro.temperature[:, None].to(logits)).log_softmax(-1)


def mean_kl(old, new):
    return float((old.exp() * (old - new)).sum(-1).mean())


def dense_step(policy, gradient):
    """sqrt(2 delta / x H x) x with x = H^-1 g, where H = mean of J' (diag p - p p') J, made from every Jacobian row."""
    micro = micro_batch(assemble(GROUPS, version=0).rollouts, policy.device)
    weights = [weight for _, weight in policy.module.named_weights()]
    found = logprobs(policy, micro)
    hessian = torch.zeros(len(gradient), len(gradient), dtype=torch.float64)
    each = torch.eye(found.shape[1], dtype=torch.float64)
    for row in found:
        slopes = torch.autograd.grad(row, weights, each, retain_graph=True, is_grads_batched=True)
        rows = torch.cat([slope.reshape(len(row), -1) for slope in slopes], dim=1)
        hessian += rows.T @ (row.detach().exp()[:, None] * rows) / len(found)
    damped = hessian + DAMPING * torch.eye(len(gradient), dtype=torch.float64)
    solved = torch.linalg.solve(damped, gradient)
    return -solved * math.sqrt(2 * DELTA / float(solved @ damped @ solved))


def surrogate_gradient(policy):
    taken = []

    class Stopped(Exception):
        pass

    def stop(**_):
        taken.append(flat(weight.grad for _, weight in policy.module.named_weights()))
        raise Stopped

    policy.apply = stop
    with pytest.raises(Stopped):
        step(policy, policy_loss="policy_gradient")
    return taken[0]


def test_a_step_is_that_of_a_dense_solve():
    one, other = backend(1), backend(1)
    before = weights_of(one)
    expected = dense_step(other, surrogate_gradient(other))
    metrics = step(one, trust_cg_steps=400)
    moved = weights_of(one) - before
    halved = 0.5 ** (metrics["trust_line_steps"] - 1)
    assert float((moved - expected * halved).norm()) <= 1e-6 * float(moved.norm())
    assert metrics["grad_norm"] > 0 and not dict(one.optimizer_rows())


@pytest.mark.long
def test_the_bound_holds_for_a_hundred_models():
    micro = micro_batch(assemble(GROUPS, version=0).rollouts, torch.device("cpu"))
    taken = 0
    for seed in range(100):
        policy = backend(seed, torch.float32)
        with torch.no_grad():
            old = logprobs(policy, micro).double()
        metrics = step(policy, micro_batch_tokens=1000, trust_kl=0.02, trust_cg_steps=4)
        with torch.no_grad():
            kl = mean_kl(old, logprobs(policy, micro).double())
        assert kl <= 0.02 * 1.001 and metrics["trust_kl"] == pytest.approx(kl, rel=1e-2, abs=1e-6)
        taken += kl > 0.002
    assert taken > 50


def test_a_step_that_cannot_stay_within_the_bound_leaves_every_bit():
    policy = backend(2, torch.float32)
    before = weights_of(policy)
    # One try, of the whole step: the quadratic model of a bound this wide is far off.
    metrics = step(policy, trust_kl=5.0, trust_line_steps=1, trust_damping=0.0)
    assert metrics["trust_kl"] == 0 and torch.equal(weights_of(policy), before)
