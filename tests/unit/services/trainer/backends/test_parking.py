"""Optimizer state that is parked on the host: its memory is gone, its bits are not."""

from typing import Any

import pytest
import torch

from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.model.optimizers import OptimizerOptions
from tests.unit.services.trainer.builders import tiny_model


def trained(name: str) -> SingleDevice:
    torch.manual_seed(0)
    policy = Policy(tiny_model(hidden=64), forward_dtype=torch.float32)
    backend = SingleDevice(policy, options=BackendOptions(optimizer=OptimizerOptions(name=name)))
    step(backend, 1)
    return backend


def step(backend: SingleDevice, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    for _, weight in backend.module.named_weights():
        weight.grad = torch.randn(weight.shape, generator=draw)
    backend.apply(learning_rate=1e-3, grad_clip=1.0)


def state_of(backend: SingleDevice) -> list[torch.Tensor]:
    states = [state for optimizer in backend._optimizers for state in optimizer.state.values()]
    return [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_parked_state_takes_no_memory_and_comes_back_bit_equal(name: str) -> None:
    backend, still = trained(name), trained(name)
    large = [tensor for tensor in state_of(backend) if tensor.nbytes >= 4096]
    size = sum(tensor.nbytes for tensor in large)
    assert large and backend.park() == size and backend._parking.left_bytes == 0
    assert all(tensor.untyped_storage().nbytes() == 0 for tensor in large)
    assert backend.park() == 0
    # A checkpoint reads it as it was, without waking it.
    for key, value in dict(backend.optimizer_rows()).items():
        assert torch.equal(value, dict(still.optimizer_rows())[key]), key
    assert all(tensor.untyped_storage().nbytes() == 0 for tensor in large)
    assert backend.unpark() == size and backend.unpark() == 0
    assert all(map(torch.equal, state_of(backend), state_of(still)))
    for one in (backend, still):
        step(one, 2)
    assert all(map(torch.equal, weights(backend), weights(still)))


def test_a_checkpoint_that_is_loaded_replaces_what_was_parked() -> None:
    backend, other = trained("adamw"), trained("adamw")
    step(other, 3)
    backend.park()
    backend.load(dict(other.whole_weights()), dict(other.optimizer_rows()))
    assert backend.unpark() == 0
    found, wanted = dict(backend.optimizer_rows()), dict(other.optimizer_rows())
    assert found.keys() == wanted.keys() and all(torch.equal(found[key], wanted[key]) for key in wanted)


def weights(backend: SingleDevice) -> list[Any]:
    return [tensor for _, tensor in backend.named_weights()]
