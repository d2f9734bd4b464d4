"""Computes how much memory a run takes on each GPU and on the host. Pure.

Persistent memory (weights, gradients, optimizer) is counted exactly as the trainer allocates it; a test compares it to
the byte on a CPU. Transient memory of a step (activations, gathered layers) is an estimate. Bytes everywhere;
GB are 1e9. P: parameters, T: trained ones, R: ranks, c: bytes of `model.dtype`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.doctor.sizes import ModelShape
from headrace.services.trainer.config import chunks

GB = 10**9
BUCKET = 512 * 1024 * 1024
OVERHEAD = GB
"""Bytes per GPU for CUDA's context and the libraries' kernels. Assumed."""
PROCESS = 2 * GB
"""Host bytes per rank for Python, torch and CUDA. Assumed."""
_ZERO_BUCKET = 200_000_000
"""Bytes of each of DeepSpeed's buckets (`headrace.services.trainer.backends.zero`)."""
_CHUNK = 32 * 1024 * 1024
"""Bytes that a rank reads at a time (`headrace.services.trainer.model.tensor_files`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a model is trained."""

    backend: Literal["single", "fsdp2", "deepspeed"] = "single"
    ranks: int = 1
    nodes: int = 1
    zero_stage: int = 3
    cpu_offload: bool = False
    dtype_bytes: int = 2
    """Bytes per parameter in the forward pass and in publications: 2 for bfloat16, 4 for float32."""
    optimizer: str = "adamw"
    micro_batch_tokens: int = 8192
    row_tokens: int = 0
    """The longest row; one that is longer than a micro-batch is alone in it."""
    cp: int = 1
    """Ranks that share the tokens of a row."""
    checkpointing: bool = False
    logprob_chunk: int = chunks.logprob_chunk(0, "cuda")
    adapter_rank: int = 0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    quantized: bool = False
    reference: bool = False
    values: tuple[ModelShape, ...] = ()
    """Models with a scalar head that are trained beside it: critic, discriminator."""
    turns: bool = False
    """The engines use its GPUs while it is idle: `rollout.gpu_sharing`."""
    nccl_links: int = 0
    """Replicas that may receive weights over NCCL at the same time."""
    bucket: int = BUCKET

    @property
    def here(self) -> int:
        """Ranks on one machine."""
        return self.ranks // self.nodes

    @property
    def tokens(self) -> int:
        """Most tokens that a rank computes at a time."""
        return max(self.micro_batch_tokens, math.ceil(self.row_tokens / self.cp))

    @property
    def sharding(self) -> tuple[int, int, int]:
        """Number of ranks that weights, gradients and optimizer state are sharded over."""
        if self.backend == "fsdp2":
            return self.ranks, self.ranks, self.ranks
        if self.backend == "deepspeed":
            spread = [self.ranks if self.zero_stage >= least else 1 for least in (3, 2, 1)]
            return spread[0], spread[1], spread[2]
        return 1, 1, 1


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """One use of memory."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """A GPU or the host: its persistent memory, and the largest transient use."""

    name: str
    held: tuple[MemoryUse, ...]
    passing: tuple[MemoryUse, ...] = ()

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return sum(part.bytes for part in (*self.held, *self.passing))


def states(shape: ModelShape, how: Training) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer state of one trained model on one rank, on GPU or host.

    Float32 masters 4 P and gradients 4 T. AdamW: two float32 moments, 8 T, and a float32 count a tensor; in 8 bits 2 T
    and a float32 scale for every 256 (arXiv:2110.02861), small tensors as before. Muon: one moment of matrices. ZeRO
    holds a further float32 master of what it shards (arXiv:1910.02054). 4-bit weights: 4.127 bits (arXiv:2305.14314).
    """
    weights_over, gradients_over, optimizer_over = how.sharding
    trained, tensors = shape.parameters, shape.tensors
    if how.adapter_rank:
        trained, tensors = shape.adapters(how.adapter_rank, how.targets)
        whole = math.ceil(shape.matrices * 4.127 / 8) if how.quantized else 0
        rest = shape.parameters - shape.matrices if how.quantized else shape.parameters
        weights = whole + _share(4 * (rest + trained), weights_over)
    else:
        weights = _share(4 * trained, weights_over)
    moments = _moments(shape, how, trained)
    master = 4 * trained if how.backend == "deepspeed" else 0
    if how.optimizer == "muon":
        tensors = 0 if how.adapter_rank else tensors - sum(count for count, _ in shape.projections.values())
    counts = 4 * tensors if how.backend != "deepspeed" else 0
    return {
        "weights": weights,
        "gradients": _share(4 * trained, gradients_over),
        "optimizer": _share(moments + master, optimizer_over) + counts,
    }


def activation_bytes(shape: ModelShape, how: Training) -> int:
    """Bytes kept for the backward pass by a forward pass over `how.tokens`, head excluded.

    A layer as transformers writes a Llama, without fused kernels, keeps of each token: of two RMS norms the input in
    float32, the normalized and the output, (4 + 2 c) h; queries, keys, values and the attention's output,
    c (2 q + 2 k), by flash attention, which keeps no scores (arXiv:2205.14135); where queries and keys have norms
    (Qwen3), of those the input in float32 and the normalized, (4 + c) (q + k); of the MLP gate, its activation, up and
    their product, 4 c i. FSDP2 computes with bfloat16 weights. The others cast float32 ones: their residual stream
    is float32, and autocast keeps an output for each projection that takes it, 16 h + 5 c h for both norms.
    With checkpointing (arXiv:1604.06174) each layer's input is kept, and one layer's whole at a time.
    """
    c = how.dtype_bytes
    casts = c < 4 and how.backend != "fsdp2"
    norms = (16 + 5 * c if casts else 2 * (4 + 2 * c)) * shape.hidden
    if shape.head_norms:
        norms += (4 + c) * (shape.queries + shape.keys)
    layer = norms + c * (2 * shape.queries + 2 * shape.keys) + 4 * c * shape.inner
    stream = (4 if casts else c) * shape.hidden
    tokens = how.tokens
    last = (8 if casts else 4 + 2 * c) * shape.hidden * tokens
    if how.checkpointing:
        return tokens * (shape.layers * stream + layer) + last
    return tokens * shape.layers * layer + last


def trainer_gpu(shape: ModelShape, how: Training, *, first: bool = True) -> MemoryPool:
    """GPU memory of one rank; `first`: it is rank 0, which makes and sends the snapshots."""
    held = [part for part in _held(shape, how) if not _is_offloaded(part.name, how)]
    if first and how.nccl_links and not how.cpu_offload and not how.adapter_rank:
        held.append(MemoryUse("buckets on their way by NCCL", how.nccl_links * how.bucket))
    held.append(MemoryUse("CUDA", OVERHEAD))
    step = tuple(_step(shape, how))
    snapshot = (MemoryUse("snapshot's staging", _staging(shape, how)),) if first else ()
    larger = max(step, snapshot, key=lambda parts: sum(part.bytes for part in parts))
    return MemoryPool("trainer", tuple(held), larger)


def resting_gpu(shape: ModelShape, how: Training, *, first: bool = True) -> MemoryPool:
    """GPU memory of one rank while the engine uses its GPU: models stay, optimizer and gradients do not.

    `first`: it is rank 0, which keeps the staging buffer of its snapshots.
    """
    held = [MemoryUse("weights", 0 if how.cpu_offload else states(shape, how)["weights"])]
    held += [MemoryUse("critic", states(value, _plain(how))["weights"]) for value in how.values if not how.cpu_offload]
    held += [part for part in _held(shape, how) if part.name == "reference" and not how.cpu_offload]
    if first:
        held.append(MemoryUse("snapshot's staging", _staging(shape, how)))
    return MemoryPool("trainer at rest", (*held, MemoryUse("CUDA", OVERHEAD)))


def trainer_host(shape: ModelShape, how: Training, *, gpus: bool = True) -> MemoryPool:
    """Host memory of the machine of rank 0; without `gpus` it includes what the ranks would keep on theirs."""
    held = [MemoryUse("processes", how.here * PROCESS), MemoryUse("snapshots", 2 * _published(shape, how, pinned=gpus))]
    if not gpus:
        inner = [*_held(shape, how), *_step(shape, how)]
        held += [MemoryUse(part.name, how.here * part.bytes) for part in inner]
    elif how.turns and not how.cpu_offload:
        held.append(MemoryUse("optimizer (parked)", how.here * _parked(shape, how)))
    else:
        offloaded = [part for part in _held(shape, how) if _is_offloaded(part.name, how)]
        held += [MemoryUse(f"{part.name} (offloaded)", how.here * part.bytes) for part in offloaded]
    trained = sum(_trained(one, how) for one in (shape, *how.values))
    checkpoint = MemoryUse("a checkpoint being written", 12 * trained * how.here // how.ranks)
    return MemoryPool("host", tuple(held), (max(checkpoint, _load(shape, how), key=lambda part: part.bytes),))


def engine_gpu(shape: ModelShape, *, tp: int, dtype_bytes: int, tokens: int, kept_whole: bool) -> MemoryPool:
    """Memory of one of a replica's `tp` GPUs: weights, and keys and values of `tokens` in all layers.

    `kept_whole`: the embedded engine receives a whole new version beside its own before it installs it.
    """
    weights = _share(dtype_bytes * shape.parameters, tp)
    held = [MemoryUse("weights", weights), MemoryUse("CUDA", OVERHEAD)]
    if kept_whole:
        held.append(MemoryUse("a new version arriving", weights))
    return MemoryPool(
        "engine", tuple(held), (MemoryUse("keys and values", tokens * cache_bytes(shape, tp, dtype_bytes)),)
    )


def cache_bytes(shape: ModelShape, tp: int, dtype_bytes: int) -> int:
    """Bytes of keys and values of one token on one of `tp` GPUs: 2 c k per layer."""
    return _share(2 * shape.layers * shape.keys * dtype_bytes, tp)


def _held(shape: ModelShape, how: Training) -> Iterator[MemoryUse]:
    for name, size in states(shape, how).items():
        yield MemoryUse(name, size)
    for value in how.values:
        yield MemoryUse("critic", sum(states(value, _plain(how)).values()))
    if how.reference and not how.adapter_rank:
        # FSDP2 shards frozen models, whichever backend trains the policy.
        yield MemoryUse("reference", _share(4 * shape.parameters, how.ranks))


def _step(shape: ModelShape, how: Training) -> Iterator[MemoryUse]:
    """Transient memory of a micro-batch, which is freed after the step."""
    c = how.dtype_bytes
    yield MemoryUse("activations", activation_bytes(shape, how))
    # Logits, their exponentials and the gradient of both, in float32, of one chunk of tokens.
    chunk = min(how.logprob_chunk, how.tokens)
    trains_head = not how.adapter_rank
    wide = (4 + (c + 4 if c < 4 else 0)) * shape.head if trains_head else 0
    yield MemoryUse("head", 12 * chunk * shape.vocabulary + wide + (c * shape.head if c < 4 else 0))
    if how.backend == "fsdp2":
        # Whole: what lies outside of layers, and three layers (in use, next, arriving); the largest gradient in the
        # forward's dtype and in float32, on its way to its shards.
        gradient = (c + 4) * max(shape.layer, shape.outside) if trains_head else 0
        matrices = c * (shape.outside + 3 * shape.layer)
        yield MemoryUse("gathered layers", gradient + matrices)
    elif how.backend == "deepspeed" and how.zero_stage == 3:
        yield MemoryUse("gathered layers", 4 * (shape.outside + 2 * shape.layer) + 3 * _ZERO_BUCKET)
    else:
        buckets = 2 * _ZERO_BUCKET if how.backend == "deepspeed" else 0
        copies = c * (shape.parameters - shape.outside) if c < 4 and not how.quantized else 0
        if copies + buckets:
            yield MemoryUse("weights in bfloat16", copies + buckets)


def _staging(shape: ModelShape, how: Training) -> int:
    """Bytes of one bucket, and with several ranks twice the tensors gathered for it."""
    bucket = min(how.bucket, _published(shape, how, pinned=False))
    return bucket * (1 if how.ranks == 1 else 3)


def _published(shape: ModelShape, how: Training, *, pinned: bool) -> int:
    """Bytes of one version; torch rounds a pinned piece up to a power of two."""
    size = how.dtype_bytes * (_trained(shape, how) if how.adapter_rank else shape.parameters)
    whole, rest = divmod(size, how.bucket)
    return whole * how.bucket + (1 << (rest - 1).bit_length() if pinned and rest else rest)


def _load(shape: ModelShape, how: Training) -> MemoryUse:
    """Host memory for loading: FSDP2 ranks read their own rows, others the whole model, in turn if it is large.

    Counted as in turn, which is the least.
    """
    if how.backend == "fsdp2" and how.ranks > 1 and not how.quantized:
        return MemoryUse("loading", how.here * _CHUNK)
    return MemoryUse("loading a whole model", 4 * shape.parameters)


def _plain(how: Training) -> Training:
    """Settings of a model with a scalar head, which is trained without adapters."""
    return Training(backend=how.backend, ranks=how.ranks, zero_stage=how.zero_stage, optimizer=how.optimizer)


def _parked(shape: ModelShape, how: Training) -> int:
    """Bytes of one rank's optimizer state in pinned host memory, rounded up to whole buckets."""
    size = states(shape, how)["optimizer"] + sum(states(value, _plain(how))["optimizer"] for value in how.values)
    return math.ceil(size / BUCKET) * BUCKET


def _trained(shape: ModelShape, how: Training) -> int:
    return shape.adapters(how.adapter_rank, how.targets)[0] if how.adapter_rank else shape.parameters


def _moments(shape: ModelShape, how: Training, trained: int) -> int:
    if how.optimizer == "adamw_8bit":
        small = 0 if how.adapter_rank else shape.small
        return 8 * small + (trained - small) * 2 + math.ceil((trained - small) / 256) * 8
    if how.optimizer == "muon" and how.backend != "deepspeed":
        return 8 * trained - 4 * (trained if how.adapter_rank else shape.matrices)
    return 8 * trained


def _is_offloaded(name: str, how: Training) -> bool:
    """FSDP2 keeps all of it in host memory, DeepSpeed gradients and optimizer, and weights in stage 3."""
    if how.backend == "deepspeed":
        moved = name in ("gradients", "optimizer") or (name == "weights" and how.zero_stage == 3)
        return how.cpu_offload and moved
    return how.cpu_offload and how.backend == "fsdp2"


def _share(size: int, parts: int) -> int:
    return math.ceil(size / parts)
