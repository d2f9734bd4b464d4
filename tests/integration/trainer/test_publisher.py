import asyncio

import numpy as np
import pytest
import torch

from services.trainer.backends.single import SingleDevice
from services.trainer.model import Policy
from services.trainer.publication.canary import make_canary
from services.trainer.publication.publisher import Publisher
from services.trainer.service import SERVICE_NAME, TrainerServicer
from tests.unit.services.trainer.builders import VOCAB, tiny_model
from wire.errors import ContractError, FencedError, TransientError
from wire.rpc import call, channel, serve
from wire.v1 import trainer_pb2, trainer_pb2_grpc
from wire.weights import CollectiveGroup, allocate, bucket_digest, load_weights, tensors_of


def canary(policy):
    return make_canary(policy, seed=1, length=8, tolerance=1e-3, chunk=4)


def backend(dtype=torch.float32):
    policy = Policy(tiny_model(), forward_dtype=dtype)
    return SingleDevice(policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)


def publisher(folder=None, dtype=torch.float32, bucket_bytes=2048):
    return Publisher(host="127.0.0.1", dtype=dtype, bucket_bytes=bucket_bytes, weights_folder=folder, canary=canary)


def test_the_canary_is_what_transformers_says_of_its_prompt():
    made = canary(backend().policy)
    ids = torch.from_numpy(np.frombuffer(made.token_ids, "<i4").astype(np.int64))
    assert len(ids) == 8 and int(ids.max()) < VOCAB
    expected = torch.log_softmax(tiny_model()(ids[None]).logits[0, :-1], -1).gather(1, ids[1:, None]).squeeze(1)
    np.testing.assert_allclose(np.frombuffer(made.logprobs, "<f4"), expected.detach().numpy(), atol=1e-6)


def test_a_snapshot_does_not_follow_the_weights():
    used, sender = backend(), publisher()
    held = sender.hold(used, 3)
    before = {name: tensor.clone() for name, tensor in tensors_of(held.snapshot.plan, held.snapshot.buckets)}
    with torch.no_grad():
        for _, weight in used.policy.named_weights():
            weight.zero_()
    after = dict(tensors_of(held.snapshot.plan, held.snapshot.buckets))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert sender.hold(used, 4).digest != held.digest


def test_a_disk_copy_is_what_travels(tmp_path):
    used = backend()
    held = publisher(tmp_path, dtype=torch.bfloat16).hold(used, 3)
    loaded = load_weights(tmp_path / "v000003")
    sent = dict(tensors_of(held.snapshot.plan, held.snapshot.buckets))
    assert held.disk_path == str(tmp_path / "v000003")
    assert loaded.keys() == sent.keys()
    assert all(torch.equal(loaded[name], sent[name]) for name in sent)


@pytest.fixture
async def served():
    sender = publisher()
    servicer = TrainerServicer(sender, lambda: "a batch")
    server = await serve({SERVICE_NAME: servicer.add_to}, "127.0.0.1", 0)
    link = channel(f"127.0.0.1:{server.port}")
    yield sender, trainer_pb2_grpc.TrainerServiceStub(link)
    await link.close()
    await server.stop(0.1)


async def test_two_receivers_get_every_bucket_over_grpc_and_gloo(served):
    sender, stub = served
    held = sender.hold(backend(), 5)
    opened = await call(
        stub.OpenGroup, trainer_pb2.OpenGroupRequest(version=5, group_name="g-1"), timeout_s=5, what="open"
    )

    def receive(rank):
        group = CollectiveGroup.join("g-1", "gloo", opened.store_host, opened.store_port, rank, 3, 10.0)
        buckets = allocate(held.snapshot.plan, "cpu")
        for bucket in buckets:
            group.broadcast(bucket, 10.0)
        group.abort()
        return [bucket_digest(bucket) for bucket in buckets]

    assert opened.backend == "gloo"
    request = trainer_pb2.SendWeightsRequest(version=5, group_name="g-1", backend="gloo", world_size=3, deadline_s=10)
    sending = call(stub.SendWeights, request, timeout_s=15, what="send")
    _, *found = await asyncio.gather(sending, *(asyncio.to_thread(receive, rank) for rank in (1, 2)))
    assert len(held.snapshot.plan.buckets) > 1
    assert found[0] == found[1] == [bucket.digest for bucket in held.snapshot.plan.buckets]


async def test_a_receiver_that_never_comes_ends_by_the_deadline(served):
    sender, stub = served
    sender.hold(backend(), 5)
    await call(stub.OpenGroup, trainer_pb2.OpenGroupRequest(version=5, group_name="g"), timeout_s=5, what="open")
    request = trainer_pb2.SendWeightsRequest(version=5, group_name="g", backend="gloo", world_size=2, deadline_s=0.5)
    with pytest.raises(TransientError, match="g"):
        await call(stub.SendWeights, request, timeout_s=15, what="send")


async def test_other_versions_and_unknown_groups_are_refused(served):
    sender, stub = served
    with pytest.raises(TransientError, match="no snapshot"):
        await call(stub.OpenGroup, trainer_pb2.OpenGroupRequest(version=0, group_name="g"), timeout_s=5, what="open")
    sender.hold(backend(), 5)
    for version, error in ((4, FencedError), (6, ContractError)):
        request = trainer_pb2.OpenGroupRequest(version=version, group_name="g")
        with pytest.raises(error):
            await call(stub.OpenGroup, request, timeout_s=5, what="open")
    request = trainer_pb2.SendWeightsRequest(version=5, group_name="none", world_size=2, deadline_s=1)
    with pytest.raises(ContractError, match="unknown_group"):
        await call(stub.SendWeights, request, timeout_s=5, what="send")
    with pytest.raises(TransientError, match="replaying"):
        await call(stub.GetFates, trainer_pb2.GetFatesRequest(), timeout_s=5, what="fates")
