"""The bucket plan: which tensor lies where in a few flat runs of bytes, and the immutable snapshot they hold."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from headrace.wire.contracts.digests import XXH3
from headrace.wire.errors import ContractError
from headrace.wire.v1 import common_pb2
from headrace.wire.weights.digest import algorithm_on, bucket_digest, dtype_name, plan_digest
from headrace.wire.weights.gather import gather, is_sharded
from headrace.wire.weights.groups import WeightGroup, partition, plain_group
from headrace.wire.weights.staging import Staging, host_buffer, on_gpu

DEFAULT_BUCKET_BYTES = 512 * 1024 * 1024

_TRAINED = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_DTYPES = {dtype_name(dtype): dtype for dtype in _TRAINED + _WHOLE}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Weights of one version as flat buckets: copies that are not written to any more."""

    plan: common_pb2.WeightPlan
    buckets: list[Tensor]
    """uint8 [size_bytes] each, in the plan's order; in host memory, pinned if `device` is a GPU."""
    device: torch.device
    """Where the weights were."""


def make_snapshot(
    named: Iterable[tuple[str, Tensor]],
    *,
    dtype: torch.dtype,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    into: Sequence[Tensor] = (),
) -> Snapshot:
    """Does what `snapshot_groups` does, for tensors that travel as they are, all in `dtype`.

    A parameter that appears under two names (tied) travels once, under the first.
    """
    if dtype not in _TRAINED:
        known = ", ".join(map(dtype_name, _TRAINED))
        raise ContractError("bad_dtype", f"weights cannot travel as {dtype}, only as {known}")
    groups = (plain_group(name, tensor, dtype) for name, tensor in _untied(named))
    return snapshot_groups(groups, bucket_bytes=bucket_bytes, into=into)


def snapshot_groups(
    groups: Iterable[WeightGroup],
    *,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    into: Sequence[Tensor] = (),
    algorithm: str = "",
) -> Snapshot:
    """Casts, converts and copies groups into buckets of at most `bucket_bytes`; see `partition` for what is never cut.

    Tensors lie one after the other without gaps, as SGLang's flattened buckets do: one dtype aligns them, so each
    bucket has one. The order is kept. All buckets are in host memory, and whole when this returns: what the weights
    become does not change them. On a GPU each is put together in one buffer there and copied in one piece. `into` are
    the buckets of a snapshot that is needed no more: where they fit they are written over, since fresh memory costs
    many times the copy. `algorithm` makes the digests; by default the one of the weights' device.

    Sharded tensors (DTensor) are gathered a bucket at a time: meanwhile every other rank is in `join_groups`. Raises
    TransientError when a rank is missing (by the deadline of the shards' own process group), ContractError for a
    conversion that gives other shapes than it promised.
    """
    plan = common_pb2.WeightPlan()
    buckets: list[Tensor] = []
    staging: Staging | None = None
    device = torch.device("cpu")
    for part in partition(groups, bucket_bytes):
        if not buckets:
            device = part[0].sources[0].device
            staging = Staging(device) if on_gpu(device) else None
        spare = into[len(buckets)] if len(buckets) < len(into) else None
        spec = plan.buckets.add(dtype=dtype_name(part[0].dtype))
        buckets.append(_fill(spec, part, staging, spare, algorithm))
    if not buckets:
        raise ContractError("empty", "there are no weights to take a snapshot of")
    plan.weights_digest = plan_digest(plan)
    return Snapshot(plan=plan, buckets=buckets, device=device)


def join_groups(groups: Iterable[WeightGroup], *, bucket_bytes: int = DEFAULT_BUCKET_BYTES) -> None:
    """The part of the ranks that hold shards but keep no snapshot: the same gathers in the same order."""
    for part in partition(groups, bucket_bytes):
        for _ in gather([tensor for group in part for tensor in group.sources], part[0].dtype):
            pass


def allocate(plan: common_pb2.WeightPlan, device: torch.device | str) -> list[Tensor]:
    """Empty buckets for a receiver of `plan`: uint8 [size_bytes] each."""
    return [torch.empty(bucket.size_bytes, dtype=torch.uint8, device=device) for bucket in plan.buckets]


def tensors_of(plan: common_pb2.WeightPlan, buckets: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Views of the named tensors in `buckets`; raises ContractError (`bad_plan`) if the plan does not fit them."""
    if len(plan.buckets) != len(buckets):
        raise ContractError("bad_plan", f"the plan has {len(plan.buckets)} buckets, there are {len(buckets)}")
    for bucket_spec, bucket in zip(plan.buckets, buckets, strict=True):
        for spec in bucket_spec.tensors:
            yield spec.name, _view(spec, bucket)


def _view(spec: common_pb2.TensorSpec, bucket: Tensor) -> Tensor:
    dtype = _DTYPES.get(spec.dtype)
    if dtype is None:
        raise ContractError("bad_plan", f"{spec.name} has the unknown dtype {spec.dtype!r}")
    shape = tuple(spec.shape)
    size = torch.Size(shape).numel() * dtype.itemsize
    if min(shape, default=1) < 0 or not 0 <= spec.offset <= len(bucket) - size or spec.offset % dtype.itemsize:
        raise ContractError("bad_plan", f"{spec.name} {shape} at {spec.offset} does not lie in {len(bucket)} bytes")
    return bucket[spec.offset : spec.offset + size].view(dtype).view(shape)


def _untied(named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Drops tensors that came before under another name. A freed one may have left its address to another."""
    seen: dict[tuple[int, tuple[int, ...], torch.device], StorageWeakRef] = {}
    for name, tensor in named:
        local = tensor.to_local() if is_sharded(tensor) else tensor
        key = (local.data_ptr(), tuple(tensor.shape), tensor.device)
        if local.numel() and key in seen and not seen[key].expired():  # type: ignore[no-untyped-call]
            continue
        seen[key] = StorageWeakRef(local.untyped_storage())  # type: ignore[no-untyped-call]
        yield name, tensor


def _fill(
    spec: common_pb2.Bucket, part: list[WeightGroup], staging: Staging | None, spare: Tensor | None, algorithm: str
) -> Tensor:
    spec.size_bytes = sum(group.size_bytes for group in part)
    if spare is not None and spare.shape == (spec.size_bytes,):
        bucket = spare
    else:
        bucket = host_buffer(spec.size_bytes, pinned=staging is not None)
    made_in = bucket if staging is None else staging.buffer(spec.size_bytes)
    _write(spec, part, made_in)
    if staging is not None:
        staging.fetch(made_in, bucket)
    algorithm = algorithm or algorithm_on(made_in.device)
    # Hashed where that costs no copy.
    spec.digest = bucket_digest(bucket if algorithm == XXH3 else made_in, algorithm)
    return bucket


def _write(spec: common_pb2.Bucket, part: list[WeightGroup], bucket: Tensor) -> None:
    """Puts the tensors of `part` one after the other into `bucket`, and their places into `spec`."""
    dtype = part[0].dtype
    wholes = gather([tensor for group in part for tensor in group.sources], dtype)
    offset = 0
    for group in part:
        made = group.convert([next(wholes) for _ in group.sources])
        for (name, shape), tensor in zip(group.published, made, strict=True):
            if tuple(tensor.shape) != shape:
                raise ContractError("bad_conversion", f"{name} came out as {tuple(tensor.shape)}, not as {shape}")
            spec.tensors.add(name=name, dtype=dtype_name(dtype), shape=shape, offset=offset)
            _view(spec.tensors[-1], bucket).copy_(tensor)
            offset += tensor.numel() * dtype.itemsize
