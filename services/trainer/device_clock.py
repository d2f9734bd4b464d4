"""When work on a device is done: kernels run behind the process that has queued them."""

from typing import cast

import torch

from services.trainer.phases import Clock, HostClock


class CudaClock:
    """A mark is the moment when all that was queued before it is done; where nothing was left, that of its making.

    To make one costs microseconds and nobody waits for it; `seconds` waits for `end`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        """See `Clock`."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """See `Clock`."""
        end.synchronize()
        return cast("float", begin.elapsed_time(end)) / 1000.0


def clock_of(device: torch.device) -> Clock:
    """The one that tells when work on `device` is done."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
