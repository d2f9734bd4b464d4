"""Tensors copied to host memory as they are at one moment: a checkpoint is written from the copy.

The copy is made beside training too: forward and backward passes change nothing of it. Whoever changes weights or
optimizer state calls `settle` first.
"""

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

import torch
from torch import Tensor

from headrace.services.trainer.durability.background_writer import complete
from headrace.wire.weights import host_buffer, on_gpu, side_stream, wait_for_copies

_FIRST, _LARGEST = 1 << 26, 1 << 31
"""Sizes of the pieces of memory: each is twice the one before, so that a large model leaves little of them empty."""
_ALIGNED = 64
Files = dict[str, dict[str, Tensor]]


class HostCopy:
    """Memory for one copy, kept for the next: new memory costs several times as much as copying."""

    def __init__(self, device: torch.device) -> None:
        """`device`: the one that trains; copies from a GPU lie in pinned memory."""
        self._device = device
        self._slabs: list[Tensor] = []
        self._slab, self._used = 0, 0
        self._taken: Future[Files] = Future()
        self._taken.set_result({})

    def take(self, files: Mapping[str, Iterable[tuple[str, Tensor]]], *, beside: bool) -> Future[Files]:
        """Copies all tensors by file and name. The copy before, which must not be in use, is overwritten.

        `beside`: in another thread, for tensors that stay as they are until `settle`; else one at a time, here.
        """
        self.settle()
        taken: Future[Files] = Future()
        self._taken = taken
        if not beside:
            complete(taken, lambda: self._copy_all(files))
            return taken
        listed = {file: list(named) for file, named in files.items()}
        stream = side_stream(self._device)
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(self._device))

        def copy() -> Files:
            with torch.cuda.stream(stream):
                return self._copy_all(listed)

        threading.Thread(target=complete, args=(taken, copy), daemon=True, name="checkpoint-copy").start()
        return taken

    def settle(self) -> None:
        """Returns when no copy is under way; raises the error of one that has failed."""
        self._taken.result()

    def _copy_all(self, files: Mapping[str, Iterable[tuple[str, Tensor]]]) -> Files:
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
            least = max(size, min(_FIRST << len(self._slabs), _LARGEST))
            # A power of two, to which torch rounds a pinned piece up anyway.
            self._slabs.append(host_buffer(1 << (least - 1).bit_length(), pinned=on_gpu(self._device)))
        start = self._used
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return self._slabs[self._slab][start : start + size]
