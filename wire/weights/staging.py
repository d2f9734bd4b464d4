"""Between a GPU and the host: buckets are kept in pinned host memory, and pass through one buffer on the device."""

import torch
from torch import Tensor


def on_gpu(device: torch.device) -> bool:
    """Whether tensors of `device` are copied to be in host memory."""
    return device.type == "cuda"


def host_buffer(size: int, *, pinned: bool) -> Tensor:
    """Empty uint8 [size] in host memory. Pinned memory is what a GPU copies without the processor; it is never swapped.

    torch rounds a pinned piece up to a power of two.
    """
    return torch.empty(size, dtype=torch.uint8, pin_memory=pinned)


class Staging:
    """One buffer on a GPU, as large as the largest bucket that has passed through it; used by one thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffer: Tensor | None = None

    def buffer(self, size: int) -> Tensor:
        """uint8 [size] on the device, to be written; the bytes before it are gone."""
        if self._buffer is None or len(self._buffer) < size:
            # Let go before the larger one is made: there are never two.
            self._buffer = None
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self._device)
        return self._buffer[:size]

    def fetch(self, staged: Tensor, host: Tensor) -> None:
        """Copies to the host. When it returns the copy is whole: the sources of `staged` may change."""
        host.copy_(staged, non_blocking=True)
        wait_for_copies(self._device)

    def lay_out(self, host: Tensor) -> Tensor:
        """A copy of `host` on the device, in the order of the current stream: what is queued after it finds it whole.

        It holds until the next call.
        """
        staged = self.buffer(len(host))
        staged.copy_(host, non_blocking=True)
        return staged


def side_stream(device: torch.device) -> "torch.cuda.Stream | None":
    """A stream for transfers beside a device's own work, for `torch.cuda.stream`; None (no stream) without a GPU.

    On the default stream a transfer would wait for all that is queued there, and what is queued after it for the
    transfer: one receiver that stands still would hold training and all other links.
    """
    return torch.cuda.Stream(device) if on_gpu(device) else None  # type: ignore[no-untyped-call]


def wait_for_copies(device: torch.device) -> None:
    """Returns when all that this thread has queued on the device is done; waits for no other stream."""
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record(torch.cuda.current_stream(device))
    done.synchronize()
