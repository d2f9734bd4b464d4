"""Measures when work on a device is done: kernels run after the process has queued them."""

from typing import cast

import torch

from headrace.services.trainer.timing.phases import Clock, HostClock


class CudaClock:
    """A mark is the moment when all work queued before it is done; without any, the moment of its creation.

    Creating one costs microseconds and blocks nothing; `seconds` waits for `end`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        """Records a timing event on the device's current stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Waits for `end`, and returns the seconds between both events."""
        end.synchronize()
        return cast("float", begin.elapsed_time(end)) / 1000.0


def clock_of(device: torch.device) -> Clock:
    """The clock that measures when work on `device` is done."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
