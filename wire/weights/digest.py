"""Digests of weights: one of a bucket's bytes, one of a whole plan, one of the weights however they are stored."""

import hashlib
from collections.abc import Iterable, Iterator

import torch
import xxhash
from torch import Tensor

from wire.v1 import common_pb2

_CHUNK_BYTES = 64 * 1024 * 1024


def dtype_name(dtype: torch.dtype) -> str:
    """Torch's name without its prefix: `float32`."""
    return str(dtype).removeprefix("torch.")


def bucket_digest(bucket: Tensor) -> str:
    """Hex xxh3-128 of a tensor's bytes; the tensor may be on any device."""
    state = xxhash.xxh3_128()
    for chunk in _chunks(bucket):
        state.update(chunk)
    return state.hexdigest()


def plan_digest(plan: common_pb2.WeightPlan) -> str:
    """Hex sha256 over names, dtypes, shapes and bucket digests: with one bucket size a function of the weights alone.

    Cheap, since it reads no weights: whoever has compared the bucket digests has compared everything.
    """
    state = hashlib.sha256()
    for bucket in plan.buckets:
        for spec in bucket.tensors:
            state.update(f"{spec.name}|{spec.dtype}|{tuple(spec.shape)}\n".encode())
        state.update(f"={bucket.digest}\n".encode())
    return state.hexdigest()


def weights_sha256(named: Iterable[tuple[str, Tensor]]) -> str:
    """Hex sha256 over sorted (name, dtype, shape, bytes): equal for equal weights, whatever their order or storage."""
    state = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        state.update(f"{name}|{dtype_name(tensor.dtype)}|{tuple(tensor.shape)}\n".encode())
        for chunk in _chunks(tensor):
            state.update(chunk)
    return state.hexdigest()


def _chunks(tensor: Tensor) -> Iterator[memoryview]:
    """The tensor's bytes in pieces, so that a copy off a device stays small."""
    flat = tensor.detach().contiguous().view(-1)
    if not flat.numel():
        return
    data = flat.view(torch.uint8)
    for start in range(0, len(data), _CHUNK_BYTES):
        yield data[start : start + _CHUNK_BYTES].cpu().numpy().data
