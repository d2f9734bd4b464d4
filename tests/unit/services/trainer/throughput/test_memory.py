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
def test_a_peak_between_two_looks_is_seen_and_then_forgotten():
    peaks = MemoryPeaks(CPU)
    before = peaks.take()["peak_host_memory_bytes"]
    touch_and_free(200)
    high = peaks.take()["peak_host_memory_bytes"]
    after = peaks.take()["peak_host_memory_bytes"]
    assert high > before + 190 * MIB
    assert after < high - 190 * MIB


def status(folder, mib):
    aside = folder / "aside"
    aside.write_text(f"Name:\tpython\nVmHWM:\t{900 * 1024} kB\nVmRSS:\t{mib * 1024} kB\n")
    aside.replace(folder / "status")


def test_the_peaks_of_a_gpu_are_asked_for_and_reset(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5.0)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 7.0)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", calls.append)
    device = torch.device("cuda:1")
    found = MemoryPeaks(device).take()
    assert (found["peak_device_memory_bytes"], found["peak_device_memory_reserved_bytes"]) == (5.0, 7.0)
    assert calls == [device, device]
