"""Peaks of memory, from one look to the next."""

import mmap
import sys

import pytest
import torch

from headrace.services.trainer.throughput.memory import MemoryPeaks

MIB = 1 << 20
CPU = torch.device("cpu")
linux = pytest.mark.skipif(sys.platform != "linux", reason="wants /proc")


def touch_and_free(mib):
    # A mapping of its own: what an allocator keeps after the free would be resident at the next look, too.
    with mmap.mmap(-1, mib * MIB) as area:
        for start in range(0, len(area), mmap.PAGESIZE):
            area[start] = 1


@linux
def test_a_peak_between_two_readings_is_reported_once():
    peaks = MemoryPeaks(CPU)
    before = peaks.take()["peak_host_memory_bytes"]
    touch_and_free(200)
    high = peaks.take()["peak_host_memory_bytes"]
    after = peaks.take()["peak_host_memory_bytes"]
    assert high > before + 190 * MIB
    assert after < high - 190 * MIB
