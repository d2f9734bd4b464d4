import time

import pytest
import torch

from headrace.services.trainer.timing.device_clock import clock_of
from headrace.services.trainer.timing.phases import OTHER, Phases
from tests.gpu.device import DEVICE, needs_cuda, on_device

pytestmark = [*on_device, needs_cuda]


def test_work_on_the_device_counts_for_the_phase_that_queued_it():
    square = torch.randn(4096, 4096, device=DEVICE)
    (square @ square).sum().item()
    phases = Phases(clock_of(square.device))
    began = time.perf_counter()
    with phases("queued"):
        for _ in range(50):
            square = square @ square
            square = square / square.norm()
        queued = time.perf_counter() - began
    with phases("after"):
        pass
    seconds = phases.lap()
    whole = time.perf_counter() - began
    # Queueing is quick, the work is not: it must not be found in the phase that happens to wait for it.
    assert seconds["queued"] > 5 * queued or seconds["queued"] > 0.9 * whole
    assert seconds["after"] < 0.05 * whole and seconds[OTHER] < 0.05 * whole
    assert sum(seconds.values()) == pytest.approx(whole, rel=0.1)
