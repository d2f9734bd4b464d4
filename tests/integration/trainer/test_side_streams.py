"""Each link sends on a stream of its own, from version to version. On a CPU streams are stood in for, bytes are not."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
import torch

from headrace.services.trainer.publication import sender as module
from headrace.services.trainer.publication.held import Held
from headrace.services.trainer.publication.sender import Sender
from headrace.wire.v1 import common_pb2
from headrace.wire.weights import CollectiveGroup, allocate, bucket_digest, make_snapshot
from headrace.wire.weights.staging import side_stream


@pytest.fixture
def used(monkeypatch):
    """(group, stream of the calling thread) of each broadcast of the sender."""
    current, found, made = threading.local(), [], iter(range(100))
    senders = set()

    @contextmanager
    def stream(wanted):
        current.stream = wanted
        senders.add(threading.get_ident())
        yield
        current.stream = None

    class Watched(CollectiveGroup):
        def broadcast(self, tensor, timeout_s):
            found.append((self.name, getattr(current, "stream", "default")))
            super().broadcast(tensor, timeout_s)

    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(module, "side_stream", lambda device: f"stream {next(made)}")
    monkeypatch.setattr(module, "CollectiveGroup", Watched)
    return found


def held(version):
    named = [(f"w{number}", torch.full((64,), float(version + number))) for number in range(3)]
    return Held(version, make_snapshot(named, dtype=torch.float32, bucket_bytes=256), common_pb2.Canary())


async def test_links_have_streams_of_their_own_which_they_keep(used):
    sender, versions = Sender("127.0.0.1"), [held(1), held(2)]
    ports = {name: (await sender.open(name))[1] for name in ("a", "b")}

    def receive(name):
        group = CollectiveGroup.join(name, "gloo", "127.0.0.1", ports[name], 1, 2, 20.0)
        digests = []
        for version in versions:
            for bucket in allocate(version.snapshot.plan, "cpu"):
                group.broadcast(bucket, 20.0)
                digests.append(bucket_digest(bucket))
        group.abort()
        return digests

    receivers = [asyncio.create_task(asyncio.to_thread(receive, name)) for name in ports]
    for version in versions:
        await asyncio.gather(*(sender.send(version, name, "gloo", 2, 20.0) for name in ports))
    wanted = [bucket.digest for version in versions for bucket in version.snapshot.plan.buckets]
    assert await asyncio.gather(*receivers) == [wanted, wanted]
    by_link = {name: {stream for group, stream in used if group == name} for name in ports}
    assert len(used) == 2 * len(wanted)
    assert all(len(streams) == 1 for streams in by_link.values()), "a link keeps its stream"
    assert by_link["a"] != by_link["b"] and "default" not in {*by_link["a"], *by_link["b"]}


def test_a_cpu_has_no_streams():
    assert side_stream(torch.device("cpu")) is None
