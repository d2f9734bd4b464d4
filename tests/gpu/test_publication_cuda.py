"""Weights from a GPU: NCCL where it can, gloo through pinned host memory where trainer and engine share the device."""

import asyncio

import pytest
import torch

from headrace.services.orchestrator.publication.routes import choose_route
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.canary import make_canary
from headrace.services.trainer.publication.publisher import Publisher
from headrace.wire.v1.common_pb2 import Routes
from headrace.wire.weights import (
    CollectiveGroup,
    allocate,
    device_names,
    digest_as,
    load_weights,
    nccl_version,
    tensors_of,
)
from tests.gpu.device import CUDA, DEVICE, on_device
from tests.unit.services.trainer.builders import tiny_model

pytestmark = on_device


@pytest.fixture
def publisher(tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    return Publisher(
        host="127.0.0.1",
        dtype=torch.bfloat16,
        bucket_bytes=2048,
        weights_folder=tmp_path / "weights",
        model_path=tmp_path / "model",
        disk_only=False,
        canary=lambda policy: make_canary(policy, seed=1, length=8, tolerance=1e-2, chunk=4),
    )


def backend(device=DEVICE):
    policy = Policy(tiny_model().to(device), forward_dtype=torch.bfloat16)
    return SingleDevice(policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)


def digests(held):
    return [bucket.digest for bucket in held.snapshot.plan.buckets]


async def test_an_engine_on_the_trainers_device_gets_them_over_gloo(publisher):
    held = publisher.hold(backend(), 1)
    assert all(bucket.is_pinned() for bucket in held.snapshot.buckets) == CUDA and len(held.snapshot.buckets) > 1
    assert held.snapshot.device.type == DEVICE.type
    device = DEVICE
    engine = Routes(backends=["nccl", "gloo"], ranks=1, nccl_version=nccl_version(), devices=list(device_names(device)))
    assert choose_route(publisher.routes, engine).backend == "gloo"
    host, port = await publisher.open_group(1, "g")

    def receive():
        group = CollectiveGroup.join("g", "gloo", host, port, 1, 2, 20.0)
        buckets = allocate(held.snapshot.plan, "cpu")
        for bucket in buckets:
            group.broadcast(bucket, 20.0)
        group.abort()
        return [digest_as(bucket, wanted) for bucket, wanted in zip(buckets, digests(held), strict=True)]

    _, found = await asyncio.gather(publisher.send(1, "g", "gloo", 2, 20.0), asyncio.to_thread(receive))
    assert found == digests(held)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL refuses two ranks on one device")
async def test_an_engine_on_another_device_gets_them_over_nccl(publisher):
    held = publisher.hold(backend(), 1)
    device = torch.device("cuda:1")
    engine = Routes(backends=["nccl", "gloo"], ranks=1, nccl_version=nccl_version(), devices=list(device_names(device)))
    assert choose_route(publisher.routes, engine).backend == "nccl"
    host, port = await publisher.open_group(1, "g")

    def receive():
        torch.cuda.set_device(device)
        group = CollectiveGroup.join("g", "nccl", host, port, 1, 2, 60.0)
        buckets = allocate(held.snapshot.plan, device)
        for bucket in buckets:
            group.broadcast(bucket, 60.0)
        group.abort()
        return [digest_as(bucket, wanted) for bucket, wanted in zip(buckets, digests(held), strict=True)]

    _, found = await asyncio.gather(publisher.send(1, "g", "nccl", 2, 60.0), asyncio.to_thread(receive))
    assert found == digests(held)


async def test_a_disk_copy_is_made_from_the_device(publisher):
    held = publisher.hold(backend(), 2)
    path = await publisher.save(2)
    loaded = load_weights(publisher._copies._folder / "v000002")
    sent = tensors_of(held.snapshot.plan, held.snapshot.buckets)
    assert path.endswith("v000002")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in sent)
