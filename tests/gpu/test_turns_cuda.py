"""Turns on a GPU: what each side gives back is the other's, and comes back bit-equal."""

from pathlib import Path

import torch

from headrace.services.rollout.engines.torch.engine import TorchEngine
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.wire.contracts import PolicyVersion
from tests.gpu.device import CUDA, DEVICE, needs_cuda, on_device
from tests.rollout_models import make_model, make_request, random_prompts, save_folder
from tests.unit.services.trainer.builders import tiny_model

pytestmark = on_device


def stepped() -> SingleDevice:
    torch.manual_seed(0)
    backend = SingleDevice(Policy(tiny_model(hidden=128).to(DEVICE), forward_dtype=torch.float32))
    advance(backend)
    return backend


def advance(backend: SingleDevice) -> None:
    for _, weight in backend.module.named_weights():
        weight.grad = torch.ones_like(weight)
    backend.apply(learning_rate=1e-3, grad_clip=1.0)


def test_parked_state_goes_through_pinned_memory_and_comes_back_bit_equal() -> None:
    backend, still = stepped(), stepped()
    size = backend.park()
    assert all(slab.is_pinned() == CUDA for slab in backend._parking._slabs._slabs)
    assert backend.unpark() == size > 0
    advance(backend)
    advance(still)
    for (name, one), (_, other) in zip(backend.named_weights(), still.named_weights(), strict=True):
        assert torch.equal(one, other), name


@needs_cuda
def test_parking_gives_the_memory_back() -> None:
    backend = stepped()
    before = torch.cuda.memory_allocated()
    size = backend.park()
    assert before - torch.cuda.memory_allocated() >= size
    backend.unpark()
    assert torch.cuda.memory_allocated() >= before


async def test_a_sleeping_engine_frees_its_memory_and_generates_the_same_after_it(tmp_path: Path) -> None:
    model = make_model("qwen3", head_dim=64)
    engine = TorchEngine(save_folder(model, tmp_path / "model"), device=str(DEVICE), max_rows=4, deterministic=True)
    request = make_request(random_prompts(9)[0], 2, max_tokens=20)
    named = dict(model.named_parameters())
    try:
        await engine.adopt(named, PolicyVersion(incarnation=1, version=0), 60)
        before = await engine.generate(request)
        held = torch.cuda.memory_allocated() if CUDA else 0
        cache = engine._cache
        assert cache is not None
        size = cache._all.nbytes
        del cache
        await engine.sleep(60)
        if CUDA:
            assert held - torch.cuda.memory_allocated() >= size
        await engine.wake(60)
        await engine.adopt(named, PolicyVersion(incarnation=1, version=1), 60)
        after = await engine.generate(request)
    finally:
        await engine.close(10)
    for one, other in zip(before, after, strict=True):
        assert one.token_ids.tobytes() == other.token_ids.tobytes()
        assert one.logprobs.tobytes() == other.logprobs.tobytes()
