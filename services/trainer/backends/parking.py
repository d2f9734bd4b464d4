"""Optimizer state in host memory, while an engine has the GPU.

A parked tensor stays the object that the optimizer knows; only its memory on the device is given back (its storage is
empty), and its bytes lie in pinned host memory. On a CPU the same happens between two pieces of host memory.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from wire.weights import host_buffer, on_gpu, wait_for_copies

_SMALL_BYTES = 4096
"""Counters and scales stay where they are: a copy would cost more than their memory is worth."""


class Parking:
    """Of the optimizers of one model on one rank; used by one thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._parked: dict[int, tuple[Tensor, Tensor]] = {}
        """id of a local tensor -> (it, its bytes on the host)."""
        self._buffers: dict[int, list[Tensor]] = {}
        """Size in bytes -> host memory that is free: pinning takes longer than the copy."""

    def park(self, optimizers: Sequence[Optimizer]) -> int:
        """Moves all large state tensors to the host; returns their bytes. Idempotent."""
        moved = [local for local in map(_local, _states(optimizers)) if self._wants(local)]
        copies: dict[int, tuple[Tensor, Tensor]] = {}
        for local in moved:
            if id(local) not in copies:
                host = self._take(local.nbytes)
                host.copy_(_bytes(local), non_blocking=True)
                copies[id(local)] = local, host
        if copies and on_gpu(self._device):
            wait_for_copies(self._device)
        for local, _ in copies.values():
            local.untyped_storage().resize_(0)
        self._parked |= copies
        return sum(len(host) for _, host in copies.values())

    def unpark(self) -> int:
        """Moves everything back; returns its bytes. Idempotent."""
        size = 0
        for local, host in self._parked.values():
            local.untyped_storage().resize_(len(host))
            _bytes(local).copy_(host, non_blocking=True)
            size += len(host)
        if size and on_gpu(self._device):
            wait_for_copies(self._device)
        for _, host in self._parked.values():
            self._buffers.setdefault(len(host), []).append(host)
        self._parked.clear()
        return size

    def forget(self) -> None:
        """The optimizers' state is replaced: what is parked of the old one is of no use."""
        self._parked.clear()

    def present(self, value: Any) -> Any:
        """The value of a state, whole where it can be read: of a parked tensor a copy on the device."""
        if not isinstance(value, Tensor) or (found := self._parked.get(id(_local(value)))) is None:
            return value
        local, host = found
        copy = host.to(self._device, copy=True).view(local.dtype).view(local.shape)
        if not isinstance(value, DTensor):
            return copy
        return DTensor.from_local(
            copy, value.device_mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
        )

    def _wants(self, local: Tensor) -> bool:
        """Not what lies in host memory beside a GPU anyway, or is parked."""
        return (
            local.device.type == self._device.type
            and local.nbytes >= _SMALL_BYTES
            and local.is_contiguous()
            and local.untyped_storage().nbytes() == local.nbytes
        )

    def _take(self, size: int) -> Tensor:
        free = self._buffers.get(size)
        return free.pop() if free else host_buffer(size, pinned=on_gpu(self._device))


def _states(optimizers: Sequence[Optimizer]) -> Iterator[Tensor]:
    for optimizer in optimizers:
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))


def _local(tensor: Tensor) -> Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _bytes(local: Tensor) -> Tensor:
    return local.view(-1).view(torch.uint8)
