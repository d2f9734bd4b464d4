"""How much memory a run takes, by arithmetic: each GPU's and the host's. Pure.

What lies there for good (weights, gradients, optimizer) is counted exactly as the trainer allocates it; a test holds it
to the byte on a CPU. What comes and goes in a step (activations, gathered layers) is an estimate. Bytes everywhere;
GB are 1e9. P: parameters, T: trained ones, R: ranks, c: bytes of `model.dtype`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.doctor.sizes import ModelShape

GB = 10**9
BUCKET = 512 * 1024 * 1024
OVERHEAD = GB
"""Of a GPU: CUDA's context and the libraries' kernels. Assumed."""
PROCESS = 2 * GB
"""Of the host, a rank: Python, torch, CUDA's own part. Assumed."""
_ZERO_BUCKET = 200_000_000
"""Bytes of each of DeepSpeed's buckets (`services.trainer.backends.zero`)."""
_CHUNK = 32 * 1024 * 1024
"""What a rank reads at a time (`services.trainer.tensor_files`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a model is trained."""

    backend: Literal["single", "fsdp2", "deepspeed"] = "single"
    ranks: int = 1
    nodes: int = 1
    zero_stage: int = 3
    cpu_offload: bool = False
    dtype_bytes: int = 2
    """Of the forward pass and of what is published: 2 for bfloat16, 4 for float32."""
    optimizer: str = "adamw"
    micro_batch_tokens: int = 8192
    checkpointing: bool = False
    logprob_chunk: int = 256
    adapter_rank: int = 0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    quantized: bool = False
    reference: bool = False
    values: tuple[ModelShape, ...] = ()
    """Models with a head of numbers, trained beside it: critic, discriminator."""
    turns: bool = False
    """The engines have its GPUs while it rests: `rollout.gpu_sharing`."""
    nccl_links: int = 0
    """Replicas that may take weights over NCCL at the same time."""
    bucket: int = BUCKET

    @property
    def here(self) -> int:
        """Ranks on one machine."""
        return self.ranks // self.nodes

    @property
    def sharding(self) -> tuple[int, int, int]:
        """Over how many ranks weights, gradients and optimizer are spread."""
        if self.backend == "fsdp2":
            return self.ranks, self.ranks, self.ranks
        if self.backend == "deepspeed":
            spread = [self.ranks if self.zero_stage >= least else 1 for least in (3, 2, 1)]
            return spread[0], spread[1], spread[2]
        return 1, 1, 1


@dataclass(frozen=True, slots=True)
class Part:
    """One use of memory."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """A GPU or the host: what lies there for good, and the larger of what comes and goes."""

    name: str
    held: tuple[Part, ...]
    passing: tuple[Part, ...] = ()

    @property
    def total(self) -> int:
        """At the peak."""
        return sum(part.bytes for part in (*self.held, *self.passing))


def states(shape: ModelShape, how: Training) -> dict[str, int]:
    """Weights, gradients and optimizer of one trained model on one rank, wherever they lie.

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
    """What the backward pass needs of a forward pass over `micro_batch_tokens`, head excluded.

    A layer as transformers writes a Llama, without fused kernels, keeps of each token: of two RMS norms the input in
    float32, the normalized and the output, (4 + 2 c) h; queries, keys, values and the attention's output,
    c (2 q + 2 k), by flash attention, which keeps no scores (arXiv:2205.14135); of the MLP gate, its activation, up
    and their product, 4 c i. FSDP2 computes with bfloat16 weights. The others cast float32 ones: their residual stream
    is float32, and autocast keeps an output for each projection that takes it, 16 h + 5 c h for both norms.
    With checkpointing (arXiv:1604.06174) each layer's input is kept, and one layer's whole at a time.
    """
    c = how.dtype_bytes
    casts = c < 4 and how.backend != "fsdp2"
    norms = (16 + 5 * c if casts else 2 * (4 + 2 * c)) * shape.hidden
    layer = norms + c * (2 * shape.queries + 2 * shape.keys) + 4 * c * shape.inner
    stream = (4 if casts else c) * shape.hidden
    tokens = how.micro_batch_tokens
    last = (8 if casts else 4 + 2 * c) * shape.hidden * tokens
    if how.checkpointing:
        return tokens * (shape.layers * stream + layer) + last
    return tokens * shape.layers * layer + last


def trainer_gpu(shape: ModelShape, how: Training, *, first: bool = True) -> Place:
    """Of one rank; `first`: rank 0's, which makes and sends the snapshots."""
    held = list(_held(shape, how)) if not _offloads_all(how) else []
    if how.cpu_offload and how.backend == "deepspeed":
        held = [part for part in held if not _on_host(part.name, how)]
    if first and how.nccl_links and not how.cpu_offload and not how.adapter_rank:
        held.append(Part("buckets on their way by NCCL", how.nccl_links * how.bucket))
    held.append(Part("CUDA", OVERHEAD))
    step = tuple(_step(shape, how))
    snapshot = (Part("snapshot's staging", _staging(shape, how)),) if first else ()
    larger = max(step, snapshot, key=lambda parts: sum(part.bytes for part in parts))
    return Place("trainer", tuple(held), larger)


def resting_gpu(shape: ModelShape, how: Training, *, first: bool = True) -> Place:
    """Of one rank while the engine has its GPU: all models stay, optimizer and gradients do not.

    `first`: rank 0's, which keeps the buffer that its snapshots pass through.
    """
    held = [Part("weights", 0 if how.cpu_offload else states(shape, how)["weights"])]
    held += [Part("critic", states(value, _plain(how))["weights"]) for value in how.values if not how.cpu_offload]
    held += [part for part in _held(shape, how) if part.name == "reference" and not how.cpu_offload]
    if first:
        held.append(Part("snapshot's staging", _staging(shape, how)))
    return Place("trainer at rest", (*held, Part("CUDA", OVERHEAD)))


def asleep_gpu() -> Place:
    """Of an engine while the trainer has its GPU."""
    return Place("engine asleep", (Part("CUDA", OVERHEAD),))


def trainer_host(shape: ModelShape, how: Training, *, gpus: bool = True) -> Place:
    """Of the machine of rank 0. Without `gpus` the ranks' own memory lies there, too."""
    held = [Part("processes", how.here * PROCESS), Part("snapshots", 2 * _published(shape, how, pinned=gpus))]
    if not gpus:
        inner = [*_held(shape, how), *_step(shape, how)]
        held += [Part(part.name, how.here * part.bytes) for part in inner]
    elif _offloads_all(how):
        held += [Part(f"{part.name} (offloaded)", how.here * part.bytes) for part in _held(shape, how)]
    elif how.turns:
        held.append(Part("optimizer (parked)", how.here * _parked(shape, how)))
    elif how.cpu_offload and how.backend == "deepspeed":
        held += [Part(f"{p.name} (offloaded)", how.here * p.bytes) for p in _held(shape, how) if _on_host(p.name, how)]
    trained = sum(_trained(one, how) for one in (shape, *how.values))
    checkpoint = Part("a checkpoint being written", 12 * trained)
    return Place("host", tuple(held), (max(checkpoint, _load(shape, how), key=lambda part: part.bytes),))


def engine_gpu(shape: ModelShape, *, tp: int, dtype_bytes: int, tokens: int, kept_whole: bool) -> Place:
    """Of one GPU of a replica that has `tp`: weights and, for `tokens`, keys and values of all layers.

    `kept_whole`: the embedded engine takes a whole new version beside its own before it installs it.
    """
    weights = _share(dtype_bytes * shape.parameters, tp)
    held = [Part("weights", weights), Part("CUDA", OVERHEAD)]
    if kept_whole:
        held.append(Part("a new version arriving", weights))
    return Place("engine", tuple(held), (Part("keys and values", tokens * cache_bytes(shape, tp, dtype_bytes)),))


def cache_bytes(shape: ModelShape, tp: int, dtype_bytes: int) -> int:
    """Keys and values of one token on one of `tp` GPUs: 2 c k a layer."""
    return _share(2 * shape.layers * shape.keys * dtype_bytes, tp)


def _held(shape: ModelShape, how: Training) -> Iterator[Part]:
    for name, size in states(shape, how).items():
        yield Part(name, size)
    for value in how.values:
        yield Part("critic", sum(states(value, _plain(how)).values()))
    if how.reference and not how.adapter_rank:
        # Frozen models are sharded by FSDP2 whatever trains beside them.
        yield Part("reference", _share(4 * shape.parameters, how.ranks))


def _step(shape: ModelShape, how: Training) -> Iterator[Part]:
    """What a micro-batch takes on top: it is gone when the step is over."""
    c = how.dtype_bytes
    yield Part("activations", activation_bytes(shape, how))
    # Logits, their exponentials and the gradient of both, in float32, of one chunk of tokens.
    chunk = min(how.logprob_chunk, how.micro_batch_tokens)
    trains_head = not how.adapter_rank
    wide = (4 + (c + 4 if c < 4 else 0)) * shape.head if trains_head else 0
    yield Part("head", 12 * chunk * shape.vocabulary + wide + (c * shape.head if c < 4 else 0))
    if how.backend == "fsdp2":
        # Whole: what lies outside of layers, and three layers (in use, next, arriving); the largest gradient in the
        # forward's dtype and in float32, on its way to its shards.
        gradient = (c + 4) * max(shape.layer, shape.outside) if trains_head else 0
        matrices = c * (shape.outside + 3 * shape.layer)
        yield Part("gathered layers", gradient + matrices)
    elif how.backend == "deepspeed" and how.zero_stage == 3:
        yield Part("gathered layers", 4 * (shape.outside + 2 * shape.layer) + 3 * _ZERO_BUCKET)
    else:
        buckets = 2 * _ZERO_BUCKET if how.backend == "deepspeed" else 0
        copies = c * (shape.parameters - shape.outside) if c < 4 and not how.quantized else 0
        if copies + buckets:
            yield Part("weights in bfloat16", copies + buckets)


def _staging(shape: ModelShape, how: Training) -> int:
    """One bucket, and with several ranks the tensors that are gathered for it, twice."""
    bucket = min(how.bucket, _published(shape, how, pinned=False))
    return bucket * (1 if how.ranks == 1 else 3)


def _published(shape: ModelShape, how: Training, *, pinned: bool) -> int:
    """Bytes of one version; torch rounds a pinned piece up to a power of two."""
    size = how.dtype_bytes * (_trained(shape, how) if how.adapter_rank else shape.parameters)
    whole, rest = divmod(size, how.bucket)
    return whole * how.bucket + (1 << (rest - 1).bit_length() if pinned and rest else rest)


def _load(shape: ModelShape, how: Training) -> Part:
    """FSDP2 reads its own rows; what is whole is read by all ranks of a machine at once, or in turn if that is much.

    Here as in turn: the least that is needed.
    """
    if how.backend == "fsdp2" and how.ranks > 1 and not how.quantized:
        return Part("loading", how.here * _CHUNK)
    return Part("loading a whole model", 4 * shape.parameters)


def _plain(how: Training) -> Training:
    """As a model with a head of numbers is trained: whole."""
    return Training(backend=how.backend, ranks=how.ranks, zero_stage=how.zero_stage, optimizer=how.optimizer)


def _parked(shape: ModelShape, how: Training) -> int:
    """Optimizer state of one rank in pinned host memory, in pieces of a power of two."""
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


def _offloads_all(how: Training) -> bool:
    """FSDP2 keeps weights, gradients and optimizer in host memory; only what is in use is on the GPU."""
    return how.cpu_offload and how.backend == "fsdp2"


def _on_host(name: str, how: Training) -> bool:
    return name in ("gradients", "optimizer") or (name == "weights" and how.zero_stage == 3)


def _share(size: int, parts: int) -> int:
    return math.ceil(size / parts)
