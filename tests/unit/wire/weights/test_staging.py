"""Snapshots of weights on a GPU lie in pinned host memory. Here the device is the CPU, and its copies come late."""

import pytest
import torch

from headrace.wire.weights import make_snapshot, plan, staging
from headrace.wire.weights.staging import Staging


class Device:
    """What a GPU does to a copy that nobody has waited for: it is not there yet. And what lies on it, in bytes."""

    def __init__(self, monkeypatch):
        self.queued, self.pinned, self.made, self.waits = [], [], [], 0
        monkeypatch.setattr(plan, "on_gpu", lambda device: True)
        monkeypatch.setattr(plan, "host_buffer", self.host_buffer)
        monkeypatch.setattr(staging, "wait_for_copies", self.wait)
        monkeypatch.setattr(Staging, "fetch", self.fetching(Staging.fetch))
        monkeypatch.setattr(torch, "empty", self.counting(torch.empty))

    def host_buffer(self, size, *, pinned):
        assert pinned
        self.pinned.append(size)
        return torch.zeros(size, dtype=torch.uint8)

    def fetching(self, own):
        def fetch(stage, staged, host):
            class Late:
                def copy_(_, source, *, non_blocking):
                    assert non_blocking
                    self.queued.append((host, source))

            own(stage, staged, Late())

        return fetch

    def counting(self, own):
        def empty(*sizes, **options):
            if options.get("device") == torch.device("cpu"):
                self.made.append(sizes[0])
            return own(*sizes, **options)

        return empty

    def wait(self, device):
        self.waits += 1
        for host, source in self.queued:
            host.copy_(source)
        self.queued.clear()


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def weights():
    torch.manual_seed(0)
    return [(f"w{number}", torch.randn(size, 3)) for number, size in enumerate((40, 10, 30, 50, 5))]


def test_a_snapshot_from_a_device_equals_one_made_on_the_host(monkeypatch):
    named = weights()
    expected = make_snapshot(named, dtype=torch.bfloat16, bucket_bytes=300)
    with monkeypatch.context() as patch:
        there = Device(patch)
        found = make_snapshot(named, dtype=torch.bfloat16, bucket_bytes=300)
    assert found.plan == expected.plan, "digests too: they are taken of whole copies"
    assert all(torch.equal(one, other) for one, other in zip(found.buckets, expected.buckets, strict=True))
    assert there.waits == len(found.buckets) > 2 and not there.queued
    assert there.pinned == [bucket.size_bytes for bucket in found.plan.buckets]


def test_buffers_of_a_finished_version_are_reused(device):
    first = make_snapshot(weights(), dtype=torch.bfloat16, bucket_bytes=300)
    pinned = len(device.pinned)
    second = make_snapshot(weights(), dtype=torch.bfloat16, bucket_bytes=300, into=first.buckets)
    assert len(device.pinned) == pinned
    assert [bucket.data_ptr() for bucket in second.buckets] == [bucket.data_ptr() for bucket in first.buckets]
