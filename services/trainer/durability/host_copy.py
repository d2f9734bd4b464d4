"""Tensors copied to host memory at one moment: a checkpoint is written from the copy while training goes on."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from headrace.wire.weights import host_buffer, on_gpu, wait_for_copies

_SLAB = 64 * 1024 * 1024
"""Pieces of memory: torch rounds each pinned one up to a power of two."""
_ALIGNED = 64


class HostCopy:
    """Memory for one copy, kept for the next: new memory costs several times as much as copying. Used by one thread."""

    def __init__(self, device: torch.device) -> None:
        """`device`: the one that trains; copies from a GPU lie in pinned memory."""
        self._device = device
        self._slabs: list[Tensor] = []
        self._slab, self._used = 0, 0

    def take(self, files: Mapping[str, Iterable[tuple[str, Tensor]]]) -> dict[str, dict[str, Tensor]]:
        """Copies all tensors by file and name, one at a time. The copies before them are overwritten."""
        self._slab, self._used = 0, 0
        taken = {file: {name: self._copy(tensor) for name, tensor in named} for file, named in files.items()}
        if on_gpu(self._device):
            wait_for_copies(self._device)
        return taken

    def _copy(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        place = self._place(tensor.nbytes).view(tensor.dtype).view(tensor.shape)
        return place.copy_(tensor, non_blocking=True)

    def _place(self, size: int) -> Tensor:
        while self._slab < len(self._slabs) and self._used + size > len(self._slabs[self._slab]):
            self._slab, self._used = self._slab + 1, 0
        if self._slab == len(self._slabs):
            self._slabs.append(host_buffer(max(size, _SLAB), pinned=on_gpu(self._device)))
        start = self._used
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return self._slabs[self._slab][start : start + size]
