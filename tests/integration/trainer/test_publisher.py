import asyncio
import hashlib
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from prometheus_client import REGISTRY
from transformers import AutoModelForCausalLM

from headrace.services.orchestrator.publication.transfer import check_digests
from headrace.services.rollout.engines.torch.receive import Receiver
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.abandoned import MOST_OF_A_REPLICA
from headrace.services.trainer.publication.canary import make_canary
from headrace.services.trainer.publication.index_check import checkpoint_names
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.service import SERVICE_NAME, TrainerServicer
from headrace.wire.errors import ContractError, FencedError, TransientError
from headrace.wire.peers.rpc import call, channel, serve
from headrace.wire.v1 import rollout_pb2, trainer_pb2, trainer_pb2_grpc
from headrace.wire.weights import (
    CollectiveGroup,
    allocate,
    bucket_digest,
    collective,
    digest_as,
    load_weights,
    tensors_of,
)
from tests.families import tiny_family
from tests.sglang_hash import sglang_gpu_hash
from tests.unit.services.trainer.builders import VOCAB, tiny_model


def canary(policy):
    return make_canary(policy, seed=1, length=8, tolerance=1e-3, chunk=4)


def backend(dtype=torch.float32):
    policy = Policy(tiny_model(), forward_dtype=dtype)
    return SingleDevice(policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)


def publisher(folder, dtype=torch.float32, bucket_bytes=2048):
    model = folder / "model"
    tiny_model().save_pretrained(model)
    return Publisher(
        host="127.0.0.1",
        dtype=dtype,
        bucket_bytes=bucket_bytes,
        weights_folder=folder / "weights",
        model_path=model,
        disk_only=False,
        canary=canary,
    )


def test_the_canary_has_the_logprobs_that_transformers_computes():
    made = canary(backend())
    ids = torch.from_numpy(np.frombuffer(made.token_ids, "<i4").astype(np.int64))
    assert len(ids) == 8 and int(ids.max()) < VOCAB
    expected = torch.log_softmax(tiny_model()(ids[None]).logits[0, :-1], -1).gather(1, ids[1:, None]).squeeze(1)
    np.testing.assert_allclose(np.frombuffer(made.logprobs, "<f4"), expected.detach().numpy(), atol=1e-6)


def test_two_versions_are_kept_and_buffers_being_read_are_not_overwritten(tmp_path):
    used, sender = backend(), publisher(tmp_path)
    first = sender.hold(used, 1)
    reading = first.read()
    with reading as snapshot:
        buckets = snapshot.buckets
        before = [bucket.clone() for bucket in buckets]
        with torch.no_grad():
            used.module.head.add_(1)
        second = sender.hold(used, 2)
        third = sender.hold(used, 3)
        assert all(torch.equal(a, b) for a, b in zip(before, buckets, strict=True))
    with pytest.raises(FencedError, match="version 1 is over"), first.read():
        pass
    assert {bucket.data_ptr() for bucket in third.snapshot.buckets}.isdisjoint(b.data_ptr() for b in buckets)
    fourth = sender.hold(used, 4)
    assert [b.data_ptr() for b in fourth.snapshot.buckets] == [b.data_ptr() for b in second.snapshot.buckets]
    assert fourth.digest == third.digest


async def test_a_disk_copy_is_a_model_folder_with_the_published_tensors(tmp_path):
    used, sender = backend(), publisher(tmp_path, dtype=torch.bfloat16)
    held = sender.hold(used, 3)
    path = await sender.save(3)
    assert path == str(tmp_path / "weights" / "v000003")
    written = (tmp_path / "weights" / "v000003" / "model.safetensors").stat().st_mtime_ns
    loaded = load_weights(tmp_path / "weights" / "v000003")
    sent = dict(tensors_of(held.snapshot.plan, held.snapshot.buckets))
    assert loaded.keys() == sent.keys()
    assert all(torch.equal(loaded[name], sent[name]) for name in sent)
    model = AutoModelForCausalLM.from_pretrained(path)
    assert model.dtype == torch.bfloat16
    assert await sender.save(3) == path
    assert (tmp_path / "weights" / "v000003" / "model.safetensors").stat().st_mtime_ns == written


async def test_checksums_cover_the_fused_parameters(tmp_path):
    used, sender = backend(), publisher(tmp_path)
    sender.hold(used, 3)
    found = await sender.checksums(3, "sglang-sha256")
    weights = dict(used.module.named_weights())
    layer = "model.layers.0.self_attn"
    fused = torch.cat([weights[f"{layer}.{part}_proj.weight"].detach() for part in "qkv"])
    assert found[f"{layer}.qkv_proj.weight"] == hashlib.sha256(fused.numpy().tobytes()).hexdigest()[:16]
    assert f"{layer}.q_proj.weight" not in found
    assert "model.norm.weight" in found
    assert await sender.checksums(3, "sglang-ranks") == {}
    on_gpu = await sender.checksums(3, "sglang-device")
    assert on_gpu[f"{layer}.qkv_proj.weight"] == sglang_gpu_hash(fused) and on_gpu.keys() == found.keys()


async def test_a_mixture_of_experts_is_published_under_the_names_of_its_checkpoint(tmp_path):
    model = tiny_family("qwen3_moe")
    sender = publisher(tmp_path, bucket_bytes=512)
    model.save_pretrained(tmp_path / "model")
    used = SingleDevice(Policy(model, forward_dtype=torch.float32))
    with torch.no_grad():
        for _, weight in used.module.named_weights():
            weight.add_(0.25)
    held = sender.hold(used, 1)
    sent = [spec.name for bucket in held.snapshot.plan.buckets for spec in bucket.tensors]
    experts = [name for name in sent if ".experts." in name]
    assert "model.layers.1.mlp.experts.3.down_proj.weight" in experts and len(experts) == 2 * 4 * 3
    path = Path(await sender.save(1))
    assert load_weights(path).keys() == checkpoint_names(tmp_path / "model")
    again = AutoModelForCausalLM.from_pretrained(path).state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in model.state_dict().items())
    found = await sender.checksums(1, "sglang-sha256")
    assert {name for name in found if ".experts." in name} == {
        f"model.layers.{layer}.mlp.experts.{part}_weight" for layer in range(2) for part in ("w13", "w2")
    }


@pytest.fixture
async def served(tmp_path):
    sender = publisher(tmp_path)
    servicer = TrainerServicer(sender)
    server = await serve({SERVICE_NAME: servicer.add_to}, "127.0.0.1", 0)
    link = channel(f"127.0.0.1:{server.port}")
    yield sender, trainer_pb2_grpc.TrainerServiceStub(link)
    await link.close()
    await server.stop(0.1)


async def test_a_receiver_verifies_by_the_digest_algorithm_that_the_plan_names(served, monkeypatch):
    monkeypatch.setattr("headrace.wire.weights.plan.algorithm_on", lambda device: "sgl64")
    sender, stub = served
    held = sender.hold(backend(), 5)
    plan = held.snapshot.plan
    assert len(plan.buckets) > 1 and all(bucket.digest.startswith("sgl64:") for bucket in plan.buckets)
    # The receiver goes by the plan, whatever its own device would choose.
    monkeypatch.undo()
    opened = await call(
        stub.OpenGroup, trainer_pb2.OpenGroupRequest(version=5, group_name="g"), timeout_s=5, what="open"
    )
    group = rollout_pb2.CollectiveGroup(
        name="g", backend="gloo", store_host=opened.store_host, store_port=opened.store_port, rank=1, world_size=2
    )
    request = trainer_pb2.SendWeightsRequest(version=5, group_name="g", backend="gloo", world_size=2, deadline_s=20)
    receive = Receiver(torch.device("cpu")).receive
    source = rollout_pb2.ReceiveWeightsRequest(collective=group)
    _, (buckets, digests) = await asyncio.gather(
        call(stub.SendWeights, request, timeout_s=30, what="send"), asyncio.to_thread(receive, plan, source, 20.0)
    )
    check_digests(plan, digests, "r")
    buckets[0][3] ^= 1
    assert digest_as(buckets[0], plan.buckets[0].digest) != plan.buckets[0].digest
    loaded = Receiver(torch.device("cpu")).receive(
        plan, rollout_pb2.ReceiveWeightsRequest(disk_path=await sender.save(5)), 20.0
    )
    check_digests(plan, loaded[1], "r")


async def test_a_send_without_its_receiver_ends_at_the_deadline(served):
    sender, stub = served
    sender.hold(backend(), 5)
    await call(stub.OpenGroup, trainer_pb2.OpenGroupRequest(version=5, group_name="g"), timeout_s=5, what="open")
    request = trainer_pb2.SendWeightsRequest(version=5, group_name="g", backend="gloo", world_size=2, deadline_s=0.5)
    with pytest.raises(TransientError, match="g"):
        await call(stub.SendWeights, request, timeout_s=15, what="send")


@pytest.mark.parametrize("seals", [True, False], ids=["sealed", "a system that seals no store"])
async def test_a_group_stays_open_for_the_next_version_and_the_version_before_can_still_be_sent(
    served, monkeypatch, seals
):
    if not seals:
        monkeypatch.delattr(os, "eventfd")
    sender, stub = served
    used = backend()
    versions = {version: sender.hold(used, version) for version in (5, 6)}
    opened = await call(
        stub.OpenGroup, trainer_pb2.OpenGroupRequest(version=5, group_name="kept"), timeout_s=5, what="open"
    )

    def receive():
        group = CollectiveGroup.join("kept", "gloo", opened.store_host, opened.store_port, 1, 2, 10.0)
        found = []
        for _ in range(2):
            buckets = allocate(versions[5].snapshot.plan, "cpu")
            for bucket in buckets:
                group.broadcast(bucket, 10.0)
            found.append([bucket_digest(bucket) for bucket in buckets])
        group.abort()
        return found

    receiving = asyncio.create_task(asyncio.to_thread(receive))
    for version in (5, 6):
        request = trainer_pb2.SendWeightsRequest(
            version=version, group_name="kept", backend="gloo", world_size=2, deadline_s=10
        )
        await call(stub.SendWeights, request, timeout_s=15, what="send")
    assert await receiving == [[b.digest for b in versions[v].snapshot.plan.buckets] for v in (5, 6)]
    request.version = 6
    with pytest.raises(TransientError):  # the receiver has left
        await call(stub.SendWeights, request, timeout_s=15, what="send")
    with pytest.raises(ContractError, match="unknown_group"):
        await call(stub.SendWeights, request, timeout_s=15, what="send")


async def test_over_nccl_each_group_copies_one_bucket_at_a_time_on_a_stream_of_its_own(tmp_path, monkeypatch):
    """NCCL and streams need GPUs; what a group is given, and on which stream, does not."""
    given, current, streams = {"a": [], "b": []}, threading.local(), iter(range(1, 9))

    class Group:
        def __init__(self, name, *_):
            self.name = name

        def broadcast(self, tensor, timeout_s):
            given[self.name].append((tensor.clone(), tensor.data_ptr(), current.stream))

    @contextmanager
    def on(stream):
        current.stream = stream
        yield

    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr("headrace.services.trainer.publication.sender.side_stream", lambda device: next(streams))
    monkeypatch.setattr("headrace.services.trainer.publication.sender.CollectiveGroup.join", Group)
    sender = publisher(tmp_path)
    versions = [sender.hold(backend(), version) for version in (1, 2)]
    for name, kind in (("a", "nccl"), ("b", "gloo")):
        await sender.open_group(1, name)
        for version in (1, 2):
            await sender.send(version, name, kind, 2, 20.0)
    buckets = [bucket for held in versions for bucket in held.snapshot.buckets]
    own = {bucket.data_ptr() for bucket in buckets}
    for found in given.values():
        assert all(torch.equal(one, other) for (one, _, _), other in zip(found, buckets, strict=True))
    copies, places = ({place for _, place, _ in given[name]} for name in "ab")
    assert len(copies) < len(own) and copies.isdisjoint(own) and places == own
    assert [{stream for _, _, stream in given[name]} for name in "ab"] == [{1}, {2}]


async def test_a_replica_whose_joins_hang_is_refused_further_groups_and_others_are_not(served, monkeypatch):
    """As `ncclCommInitRank` hangs when its peer has died: each join costs a thread, so their number is bounded."""
    sender, stub = served
    sender.hold(backend(), 5)
    may_end, made, total = threading.Event(), [], REGISTRY.get_sample_value("headrace_trainer_abandoned_joins_total")

    class Hanging:
        def broadcast(self, tensors, options):
            may_end.wait()

        def abort(self):
            pass

    monkeypatch.setattr(collective, "_open", lambda *_: made.append(Hanging()) or made[-1])

    async def publish_to(replica):
        name = f"{replica}-{time.monotonic_ns()}"
        opening = trainer_pb2.OpenGroupRequest(version=5, group_name=name, replica_id=replica)
        if refused := (await call(stub.OpenGroup, opening, timeout_s=60, what="open")).refused:
            return refused
        request = trainer_pb2.SendWeightsRequest(
            version=5, group_name=name, backend="nccl", world_size=2, deadline_s=0.2
        )
        with pytest.raises(TransientError) as raised:
            await call(stub.SendWeights, request, timeout_s=60, what="send")
        return str(raised.value)

    try:
        for _ in range(MOST_OF_A_REPLICA):
            assert "a member did not connect" in await publish_to("rollout-0")
        assert (await publish_to("rollout-0")).startswith("3 joins of its collective groups hang in the trainer;")
        assert len(made) == REGISTRY.get_sample_value("headrace_trainer_abandoned_join_threads") == MOST_OF_A_REPLICA
        assert REGISTRY.get_sample_value("headrace_trainer_abandoned_joins_total") - total == MOST_OF_A_REPLICA
        assert "a member did not connect" in await publish_to("rollout-1")
    finally:
        may_end.set()
