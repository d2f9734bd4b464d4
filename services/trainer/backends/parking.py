"""Optimizer state in host memory, while an engine has the GPU.

A parked tensor stays the object that the optimizer knows; only its memory on the device is given back (its storage is
empty), and its bytes lie in pinned host memory: in slabs of one size, for torch rounds each pinned piece up to a power
of two. On a CPU the same happens between two pieces of host memory.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from headrace.wire.telemetry.logs import get_logger
from headrace.wire.weights import host_buffer, on_gpu, wait_for_copies

log = get_logger("trainer.parking")

_SLAB = 512 * 1024 * 1024
_SMALL_BYTES = 4096
"""Counters and scales stay where they are: a copy would cost more than their memory is worth."""


class _Slabs:
    """Host memory in pieces of one size, addressed as one run of bytes. It only grows: pinning is slow."""

    def __init__(self, size: int, *, pinned: bool) -> None:
        self._size = size
        self._pinned = pinned
        self._slabs: list[Tensor] = []

    def grow(self, size: int) -> None:
        """Grows to at least `size` bytes."""
        while len(self._slabs) * self._size < size:
            self._slabs.append(host_buffer(self._size, pinned=self._pinned))

    def pieces(self, start: int, size: int) -> Iterator[Tensor]:
        """Views that together are bytes [start, start + size)."""
        end = start + size
        while start < end:
            number, offset = divmod(start, self._size)
            length = min(self._size - offset, end - start)
            yield self._slabs[number][offset : offset + length]
            start += length

    def write(self, start: int, source: Tensor) -> None:
        """Queues the copy of uint8 [size] to byte `start` and on."""
        for piece in self.pieces(start, len(source)):
            piece.copy_(source[: len(piece)], non_blocking=True)
            source = source[len(piece) :]

    def read(self, start: int, target: Tensor) -> None:
        """Queues the copy of the bytes from `start` on into uint8 [size]."""
        for piece in self.pieces(start, len(target)):
            target[: len(piece)].copy_(piece, non_blocking=True)
            target = target[len(piece) :]


class Parking:
    """Parks the optimizer state of one model on one rank. Used by one thread."""

    def __init__(self, device: torch.device, *, slab_bytes: int = _SLAB) -> None:
        self._device = device
        self._slabs = _Slabs(slab_bytes, pinned=on_gpu(device))
        self._parked: dict[int, tuple[Tensor, int]] = {}
        """id of a local tensor -> (the tensor, offset of its bytes in the slabs)."""
        self.left_bytes = 0
        """Bytes of large state that the last `park` left on the device: its memory is shared or not contiguous."""

    @property
    def is_parked(self) -> bool:
        """Whether any state is on the host."""
        return bool(self._parked)

    def park(self, optimizers: Sequence[Optimizer]) -> int:
        """Moves all large state tensors to the host; returns their bytes. Idempotent."""
        if self._parked:
            return 0
        large = {id(local): local for local in map(_local, _states(optimizers)) if self._is_large(local)}
        moved = {key: local for key, local in large.items() if _is_whole(local)}
        self.left_bytes = sum(local.nbytes for key, local in large.items() if key not in moved)
        if self.left_bytes:
            log.warning("state_not_parked", bytes=self.left_bytes, effect="the engine has so much less of the GPU")
        size = sum(local.nbytes for local in moved.values())
        self._slabs.grow(size)
        start = 0
        for key, local in moved.items():
            self._slabs.write(start, _bytes(local))
            self._parked[key] = local, start
            start += local.nbytes
        self._wait()
        for local in moved.values():
            local.untyped_storage().resize_(0)
        return size

    def unpark(self) -> int:
        """Moves everything back; returns its bytes. Idempotent."""
        size = 0
        for local, start in self._parked.values():
            local.untyped_storage().resize_(local.nbytes)
            self._slabs.read(start, _bytes(local))
            size += local.nbytes
        self._wait()
        self._parked.clear()
        return size

    def forget(self) -> None:
        """Drops what is parked, because the optimizers' state is about to be replaced."""
        self._parked.clear()

    def present(self, value: Any) -> Any:
        """Returns a state value in readable form: for a parked tensor, a copy on the device."""
        if not isinstance(value, Tensor) or (found := self._parked.get(id(_local(value)))) is None:
            return value
        local, start = found
        copy = torch.empty(local.shape, dtype=local.dtype, device=self._device)
        self._slabs.read(start, _bytes(copy))
        self._wait()
        if not isinstance(value, DTensor):
            return copy
        return DTensor.from_local(
            copy, value.device_mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
        )

    def _wait(self) -> None:
        if on_gpu(self._device):
            wait_for_copies(self._device)

    def _is_large(self, local: Tensor) -> bool:
        """Whether the tensor is worth moving and on the device; on a GPU, offloaded state is in host memory anyway."""
        return local.device.type == self._device.type and local.nbytes >= _SMALL_BYTES


def _states(optimizers: Sequence[Optimizer]) -> Iterator[Tensor]:
    for optimizer in optimizers:
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))


def _is_whole(local: Tensor) -> bool:
    """Whether the tensor owns its memory, from the first byte to the last."""
    return local.is_contiguous() and local.untyped_storage().nbytes() == local.nbytes


def _local(tensor: Tensor) -> Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _bytes(local: Tensor) -> Tensor:
    return local.view(-1).view(torch.uint8)
