"""Digests of weights: one of a bucket's bytes, one of a whole plan, one of the weights however they are stored."""

import hashlib
from collections.abc import Iterable, Iterator

import torch
import xxhash
from torch import Tensor

from headrace.wire.contracts.digests import (
    SGL64,
    SGL64_MOST_BYTES,
    XXH3,
    algorithm_of,
    named,
    unknown_algorithm,
    value_of,
)
from headrace.wire.errors import ContractError
from headrace.wire.v1 import common_pb2
from headrace.wire.weights.device_hash import device_hash

_CHUNK_BYTES = 64 * 1024 * 1024


def dtype_name(dtype: torch.dtype) -> str:
    """Torch's name without its prefix: `float32`."""
    return str(dtype).removeprefix("torch.")


def algorithm_on(device: torch.device) -> str:
    """How buckets are named where they lie: a GPU hashes its own, which spares the step a copy to the host."""
    return SGL64 if device.type == "cuda" else XXH3


def bucket_digest(bucket: Tensor, algorithm: str = "", *, device: torch.device | None = None) -> str:
    """Digest of a tensor's bytes, with the name of its algorithm: by default the one for the tensor's device.

    `device` is where `sgl64` is computed, if not where the tensor lies; `xxh3` is always computed on the host. A bucket
    too large for `sgl64` (one tensor of 8 GiB) is hashed in pieces, and then the pieces' hashes. Raises
    ContractError (`unknown_digest`) for an algorithm that is not known.
    """
    algorithm = algorithm or algorithm_on(bucket.device)
    if algorithm == SGL64:
        return named(SGL64, _device_digest(bucket, device))
    if algorithm != XXH3:
        raise ContractError("unknown_digest", unknown_algorithm(algorithm))
    state = xxhash.xxh3_128()
    for chunk in _chunks(bucket):
        state.update(chunk)
    return named(XXH3, state.hexdigest())


def _device_digest(bucket: Tensor, device: torch.device | None) -> str:
    if bucket.numel() * bucket.element_size() <= SGL64_MOST_BYTES:
        return device_hash([bucket], device)
    pieces = torch.split(bucket.detach().contiguous().view(-1).view(torch.uint8), SGL64_MOST_BYTES)
    hashes = "".join(device_hash([piece], device) for piece in pieces)
    return device_hash([torch.frombuffer(bytearray(hashes.encode()), dtype=torch.uint8)])


def digest_as(bucket: Tensor, wanted: str, *, device: torch.device | None = None) -> str:
    """What arrived, to be compared with `wanted`: by its algorithm, and without a name where it has none."""
    found = bucket_digest(bucket, algorithm_of(wanted), device=device)
    return found if ":" in wanted else value_of(found)


def plan_digest(plan: common_pb2.WeightPlan) -> str:
    """sha256 over names, dtypes, shapes and bucket digests: with one bucket size a function of the weights alone.

    It has the name of the buckets' algorithm, for by that alone it can be compared.

    Cheap, since it reads no weights: comparing the bucket digests compares everything.
    """
    state = hashlib.sha256()
    for bucket in plan.buckets:
        for spec in bucket.tensors:
            state.update(f"{spec.name}|{spec.dtype}|{tuple(spec.shape)}\n".encode())
        state.update(f"={value_of(bucket.digest)}\n".encode())
    return named(algorithm_of(plan.buckets[0].digest), state.hexdigest())


def weights_sha256(named: Iterable[tuple[str, Tensor]]) -> str:
    """Hex sha256 over sorted (name, dtype, shape, bytes): equal for equal weights in any order and storage."""
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
