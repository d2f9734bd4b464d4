"""The memory plan against what a trainer allocates, and against counts by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from headrace.doctor.memory_plan import (
    GB,
    OVERHEAD,
    MemoryPool,
    Training,
    activation_bytes,
    states,
    trainer_gpu,
    trainer_host,
)
from headrace.doctor.sizes import ModelShape, model_parameters, read_shape
from headrace.selfcheck.step import SIZES, planned_shape
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.lora import add_adapters
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.model.optimizers import OptimizerOptions
from headrace.wire.config.settings import LoraTable
from tests.families import tiny_family
from tests.unit.services.trainer.builders import tiny_model

IDS = torch.tensor([[3, 7, 11, 2, 5, 19]])
LORA = LoraTable(rank=2, alpha=4, targets=("q_proj", "down_proj"))


def llama(**more: Any) -> ModelShape:
    """Shape of Llama 3.1 8B, or of one that differs."""
    known: dict[str, Any] = {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 8192,
    }  # fmt: skip
    return planned_shape(LlamaConfig(**known | more))


EIGHT = llama()


def by_name(place: MemoryPool) -> dict[str, int]:
    return {part.name: part.bytes for part in (*place.held, *place.passing)}


def saved(model: Any, folder: Path) -> ModelShape:
    model.save_pretrained(folder)
    found = read_shape(folder)
    assert found is not None
    return found


def allocated(backend: SingleDevice) -> dict[str, int]:
    """Bytes of a trainer that has taken a step."""
    scores = backend(IDS, torch.tensor([0]), torch.tensor([2]), torch.tensor([5]), torch.ones(1), 4)
    backend.backward(scores.logprobs.sum())
    parameters = list(backend.module.model.parameters())
    gradients = sum(each.grad.nbytes for each in parameters if each.grad is not None)
    backend.apply(learning_rate=1e-3, grad_clip=1.0)
    state = [each for optimizer in backend._optimizers for each in optimizer.state.values()]
    moments = [value for each in state for value in each.values()]
    return {
        "weights": sum(each.nbytes for each in parameters),
        "gradients": gradients,
        "optimizer": sum(value.nbytes for value in moments if isinstance(value, torch.Tensor)),
    }


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("tied", [True, False])
def test_planned_persistent_memory_equals_the_trainers_allocation_to_the_byte(
    tmp_path: Path, optimizer: str, tied: bool
) -> None:
    model = tiny_model(tied=tied, layers=3)
    shape = saved(model, tmp_path)
    options = BackendOptions(optimizer=OptimizerOptions(name=optimizer))
    found = allocated(SingleDevice(Policy(model, forward_dtype=torch.float32), options=options))
    assert found == states(shape, Training(optimizer=optimizer))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_planned_adapter_memory_equals_the_trainers_allocation_to_the_byte(tmp_path: Path, optimizer: str) -> None:
    model = tiny_model(layers=2)
    shape = saved(model, tmp_path)
    add_adapters(model, LORA)
    options = BackendOptions(optimizer=OptimizerOptions(name=optimizer))
    found = allocated(SingleDevice(Policy(model, forward_dtype=torch.float32, lora=LORA), options=options))
    assert found == states(shape, Training(optimizer=optimizer, adapter_rank=2, targets=LORA.targets))


def kept_for_backward(module: Any) -> int:
    """Bytes that the backward pass of the body keeps, weights and their casts apart."""
    weights = {weight.untyped_storage().data_ptr() for weight in module.parameters()}
    shapes = {tuple(weight.shape) for weight in module.parameters() if weight.ndim == 2}
    seen: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        cast = tuple(tensor.shape) in shapes or tuple(tensor.shape)[::-1] in shapes
        if storage.data_ptr() not in weights and not cast:
            seen[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module.hidden(torch.randint(0, 64, (3, 65)))
    return sum(size for size, _ in seen.values())


@pytest.mark.parametrize(
    ("how", "weights", "forward"),
    [
        (Training(dtype_bytes=4), torch.float32, torch.float32),
        (Training(dtype_bytes=2), torch.float32, torch.bfloat16),
        # What a layer's forward pass under FSDP2 is: weights in bfloat16 and no autocast.
        (Training(dtype_bytes=2, backend="fsdp2", ranks=2), torch.bfloat16, torch.float32),
    ],
)
@pytest.mark.parametrize("head_norms", [False, True], ids=["llama", "qwen3"])
def test_planned_activations_equal_those_kept_by_a_forward_pass(
    how: Training, weights: torch.dtype, forward: torch.dtype, head_norms: bool
) -> None:
    kind, model = (Qwen3Config, Qwen3ForCausalLM) if head_norms else (LlamaConfig, LlamaForCausalLM)
    config = kind(
        vocab_size=64,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
    )
    made = model(config).to(weights).train()
    expected = activation_bytes(planned_shape(config), replace(how, micro_batch_tokens=3 * 65))
    assert kept_for_backward(Policy(made, forward_dtype=forward)) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("size", "tokens", "chunk", "gib"),
    [("0.6", 8192, 256, 29.3), ("1.7", 16384, 256, 89.4), ("1.7", 16384, 2048, 90.9), ("1.7", 16384, 8192, 101.5)],
)
def test_the_plan_of_a_step_matches_measurements_on_an_h200(size: str, tokens: int, chunk: int, gib: float) -> None:
    """Peaks of `headrace.selfcheck.step`, torch 2.11, 2026-11-26; it holds neither CUDA's context nor a snapshot."""
    pool = trainer_gpu(
        planned_shape(SIZES[size]), Training(micro_batch_tokens=tokens, logprob_chunk=chunk), first=False
    )
    assert (pool.total - OVERHEAD) / 2**30 == pytest.approx(gib, rel=0.03)


def test_a_size_by_config_is_the_one_that_the_model_is_known_for() -> None:
    assert EIGHT.parameters == 8_030_261_248 == EIGHT.outside + EIGHT.layers * EIGHT.layer


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_a_folder_and_a_config_give_the_same_shape(tmp_path: Path, kind: str) -> None:
    model = tiny_family(kind, tie_word_embeddings=False)
    found = saved(model, tmp_path)
    assert found.parameters == model_parameters(tmp_path) == sum(weight.numel() for weight in model.parameters())
    assert found.tensors == len(list(model.parameters())) and not found.tied
    attention = model.model.layers[0].self_attn
    widths = (attention.q_proj.out_features, attention.k_proj.out_features)
    assert (found.queries, found.keys, found.layers) == (*widths, 2)
    assert (found.hidden, found.inner, found.vocabulary) == (32, 48, 96)


def test_a_mixture_counts_all_experts_as_weights_but_only_active_ones_as_activations(tmp_path: Path) -> None:
    model = tiny_family("qwen3_moe")
    found = saved(model, tmp_path)
    assert found.parameters == sum(weight.numel() for weight in model.parameters())
    assert found.inner == 2 * 16, "two experts of 16 a token"
    assert not {"up_proj", "down_proj"} & set(found.projections), "experts get no adapters"


def test_eight_ranks_share_everything_and_rank_0_has_one_bucket_more() -> None:
    how = Training(backend="fsdp2", ranks=8, nccl_links=2)
    first, other = by_name(trainer_gpu(EIGHT, how)), by_name(trainer_gpu(EIGHT, how, first=False))
    assert first["weights"] == EIGHT.parameters // 2 and first["optimizer"] == EIGHT.parameters + 4 * EIGHT.tensors
    assert first.pop("buckets on their way by NCCL") == 2 * 512 * 1024 * 1024
    assert first == other, "49 GB on rank 0 and 16 elsewhere, before snapshots went to the host"


@pytest.mark.parametrize(
    ("stage", "weights", "gradients", "optimizer"),
    [(1, 4, 4, 12 / 8), (2, 4, 4 / 8, 12 / 8), (3, 4 / 8, 4 / 8, 12 / 8)],
)
def test_each_zero_stage_shards_its_documented_parts(
    stage: int, weights: float, gradients: float, optimizer: float
) -> None:
    held = states(EIGHT, Training(backend="deepspeed", ranks=8, zero_stage=stage))
    expected = {"weights": weights, "gradients": gradients, "optimizer": optimizer}
    assert {name: size / EIGHT.parameters for name, size in held.items()} == pytest.approx(expected)


def test_the_host_has_both_snapshots_and_a_checkpoint_and_no_whole_model_of_each_rank() -> None:
    host = by_name(trainer_host(EIGHT, Training(backend="fsdp2", ranks=8)))
    assert 4 * EIGHT.parameters <= host["snapshots"] < 4 * EIGHT.parameters + GB
    assert host["a checkpoint being written"] == 12 * EIGHT.parameters
    assert not any(name.startswith("loading") for name in host)
    adapters = by_name(trainer_host(EIGHT, Training(backend="deepspeed", ranks=8, adapter_rank=16)))
    assert adapters["loading a whole model"] == 4 * EIGHT.parameters and adapters["snapshots"] < GB
