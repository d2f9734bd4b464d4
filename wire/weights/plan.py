"""The bucket plan: which tensor lies where in a few flat runs of bytes, and the immutable snapshot they hold."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef

from wire.errors import ContractError
from wire.v1 import common_pb2
from wire.weights.digest import bucket_digest, dtype_name, plan_digest
from wire.weights.gather import gather

DEFAULT_BUCKET_BYTES = 512 * 1024 * 1024

_DTYPES = {dtype_name(dtype): dtype for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Weights of one version as flat buckets: copies that nobody writes to any more."""

    plan: common_pb2.WeightPlan
    buckets: list[Tensor]
    """uint8 [size_bytes] each, in the plan's order."""


def make_snapshot(
    named: Iterable[tuple[str, Tensor]],
    *,
    dtype: torch.dtype,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    into: Sequence[Tensor] = (),
) -> Snapshot:
    """Casts and copies `named` into buckets of at most `bucket_bytes` (a larger tensor gets a bucket of its own).

    Tensors lie one behind the other without gaps, as SGLang's flattened buckets do: one dtype aligns them. The order is
    kept; a parameter that appears under two names (tied) travels once, under the first. Each bucket is on the device of
    its first tensor. `into` are the buckets of a snapshot that is needed no more: where they fit they are written over,
    since fresh memory costs many times the copy.

    Sharded tensors (DTensor) are gathered a bucket at a time: meanwhile every other rank is in `join_snapshot`. Raises
    TransientError when a rank is missing (by the deadline of the shards' own process group).
    """
    if dtype_name(dtype) not in _DTYPES:
        raise ContractError("bad_dtype", f"weights cannot travel as {dtype}, only as {', '.join(_DTYPES)}")
    plan = common_pb2.WeightPlan()
    buckets: list[Tensor] = []
    for part in _partition(_untied(named), dtype.itemsize, bucket_bytes):
        spare = into[len(buckets)] if len(buckets) < len(into) else None
        bucket = _fill(plan.buckets.add(dtype=dtype_name(dtype)), part, dtype, spare)
        buckets.append(bucket)
    if not buckets:
        raise ContractError("empty", "there are no weights to take a snapshot of")
    plan.weights_digest = plan_digest(plan)
    return Snapshot(plan=plan, buckets=buckets)


def join_snapshot(
    named: Iterable[tuple[str, Tensor]], *, dtype: torch.dtype, bucket_bytes: int = DEFAULT_BUCKET_BYTES
) -> None:
    """The part of the ranks that hold shards but keep no snapshot: the same gathers in the same order."""
    for part in _partition(_untied(named), dtype.itemsize, bucket_bytes):
        for _ in gather([tensor for _, tensor, _ in part], dtype):
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
    """Without tensors that came before under another name. One that is gone by now may have left its address behind."""
    seen: dict[tuple[int, tuple[int, ...], torch.device], StorageWeakRef] = {}
    for name, tensor in named:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        key = (local.data_ptr(), tuple(tensor.shape), tensor.device)
        if local.numel() and key in seen and not seen[key].expired():  # type: ignore[no-untyped-call]
            continue
        seen[key] = StorageWeakRef(local.untyped_storage())  # type: ignore[no-untyped-call]
        yield name, tensor


def _partition(
    named: Iterable[tuple[str, Tensor]], itemsize: int, bucket_bytes: int
) -> Iterator[list[tuple[str, Tensor, int]]]:
    """Lists of (name, tensor, offset), one a bucket."""
    part: list[tuple[str, Tensor, int]] = []
    end = 0
    for name, tensor in named:
        size = tensor.numel() * itemsize
        if part and end + size > bucket_bytes:
            yield part
            part, end = [], 0
        part.append((name, tensor, end))
        end += size
    if part:
        yield part


def _fill(
    spec: common_pb2.Bucket, part: list[tuple[str, Tensor, int]], dtype: torch.dtype, spare: Tensor | None
) -> Tensor:
    _, last, offset = part[-1]
    spec.size_bytes = offset + last.numel() * dtype.itemsize
    device = part[0][1].device
    if spare is not None and spare.shape == (spec.size_bytes,) and spare.device == device:
        bucket = spare
    else:
        bucket = torch.empty(spec.size_bytes, dtype=torch.uint8, device=device)
    wholes = gather([tensor for _, tensor, _ in part], dtype)
    for (name, tensor, start), whole in zip(part, wholes, strict=True):
        spec.tensors.add(name=name, dtype=dtype_name(dtype), shape=list(tensor.shape), offset=start)
        _view(spec.tensors[-1], bucket).copy_(whole)
    spec.digest = bucket_digest(bucket)
    return bucket
