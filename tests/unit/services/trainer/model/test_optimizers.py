"""Each optimizer learns, and goes on from its saved state as if nothing had happened."""

import pytest
import torch

from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.lora import add_adapters
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.model.optimizers import OPTIMIZERS, OptimizerOptions, build_optimizers
from tests.unit.services.trainer.builders import tiny_model
from tests.unit.services.trainer.families import family

IDS = torch.tensor([[3, 7, 11, 2, 5, 19]])
RATE = 0.01


def make(name, seed=0, lora=None):
    if name == "adamw_8bit":
        pytest.importorskip("bitsandbytes", reason="the extra `qlora` is not installed")
    # Wide enough for moments in 8 bits.
    model = tiny_model(seed, hidden=64, tied=False)
    if lora is not None:
        add_adapters(model, lora)
    policy = Policy(model, forward_dtype=torch.float32, lora=lora)
    options = OptimizerOptions(name=name, betas=(0.9, 0.99), weight_decay=0.1)
    return SingleDevice(policy, options=BackendOptions(optimizer=options))


def step(backend):
    places = torch.arange(5)
    scores = backend(IDS[:, :-1], torch.zeros_like(places), places, IDS[0, 1:], torch.ones(5), 4)
    loss = -scores.logprobs.mean()
    backend.backward(loss)
    backend.apply(learning_rate=RATE, grad_clip=1.0)
    return float(loss.detach())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_learns(name):
    backend = make(name)
    losses = [step(backend) for _ in range(12)]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_saved_state_goes_on_in_the_same_bits(name):
    first, second = make(name), make(name, seed=4)
    for _ in range(3):
        step(first)
    step(second)
    weights = {key: value.clone() for key, value in first.whole_weights()}
    state = {key: value.clone() for key, value in dict(first.optimizer_rows()).items()}
    assert state
    second.load(weights, state)
    for _ in range(2):
        assert step(first) == step(second)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(first.whole_weights(), second.whole_weights(), strict=True))


def test_8_bit_moments_are_bytes_and_their_steps_are_close_to_adamw():
    exact, low = make("adamw"), make("adamw_8bit")
    for _ in range(4):
        assert step(low) == pytest.approx(step(exact), rel=0.02)
    state = dict(low.optimizer_rows())
    assert state["model.layers.0.mlp.up_proj.weight/state1"].dtype == torch.uint8


def test_muon_moves_a_matrix_by_an_orthogonal_one_of_adamws_size():
    backend = make("muon")
    name = "model.layers.0.mlp.up_proj.weight"
    before = dict(backend.whole_weights())[name].clone()
    step(backend)
    moved = (dict(backend.whole_weights())[name] - before * (1 - RATE * 0.1)) / RATE
    # Five tokens give a gradient of rank five.
    singular = torch.linalg.svdvals(moved)[:3] / (0.2 * max(moved.shape) ** 0.5)
    assert all(0.7 < float(value) < 1.3 for value in singular)


@pytest.mark.parametrize("kind", ["gpt_oss", "jamba", "cohere", "qwen3_moe"])
def test_norms_biases_and_state_matrices_are_not_decayed_or_orthogonalized(kind):
    kept_out = {"jamba": ("A_log", "bias", "layernorm"), "cohere": ("_norm", "layernorm")}
    changes = {"use_qk_norm": True, "logit_scale": 1.0} if kind == "cohere" else {}
    policy = Policy(family(kind, **changes), forward_dtype=torch.float32)
    names = {weight: name for name, weight in policy.named_weights()}
    for optimizer in ("adamw", "muon"):
        made = build_optimizers(policy, OptimizerOptions(name=optimizer, weight_decay=0.1))
        groups = [group for each in made for group in each.param_groups]
        decayed = {names[weight] for group in groups if group["weight_decay"] for weight in group["params"]}
        assert decayed == {
            name
            for weight, name in names.items()
            if weight.ndim > 1 and not any(part in name for part in kept_out.get(kind, ("bias",)))
        }
    assert any(weight.ndim > 1 and name not in decayed for weight, name in names.items()) is (kind != "qwen3_moe")
