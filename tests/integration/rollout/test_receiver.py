"""One transfer after the other into the same buffers: what is over holds nobody up and overwrites nothing."""

import socket
import threading
import time
from pathlib import Path

import pytest
import torch

from headrace.services.rollout.engines.torch.receive import Receiver
from headrace.wire.errors import TransientError
from headrace.wire.v1 import rollout_pb2
from headrace.wire.weights import make_snapshot, save_weights
from tests.rollout_models import make_model


def test_a_transfer_from_a_dead_trainer_does_not_delay_the_next(tmp_path: Path) -> None:
    model = make_model()
    snapshot = make_snapshot(model.named_parameters(), dtype=torch.float32, bucket_bytes=40_000)
    save_weights(tmp_path / "v1", model.named_parameters(), {})
    receiver = Receiver(torch.device("cpu"))
    failures: list[Exception] = []
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        group = rollout_pb2.CollectiveGroup(
            name="gone",
            backend="gloo",
            store_host="127.0.0.1",
            store_port=silent.getsockname()[1],
            rank=1,
            world_size=2,
        )

        def wait_in_vain() -> None:
            try:
                receiver.receive(snapshot.plan, rollout_pb2.ReceiveWeightsRequest(collective=group), 4.0)
            except TransientError as error:
                failures.append(error)

        waiting = threading.Thread(target=wait_in_vain)
        waiting.start()
        while not receiver._turn:
            time.sleep(0.005)
        request = rollout_pb2.ReceiveWeightsRequest(disk_path=str(tmp_path / "v1"))
        buckets, digests = receiver.receive(snapshot.plan, request, 10.0)
        assert digests == [bucket.digest for bucket in snapshot.plan.buckets]
        assert waiting.is_alive(), "this one has waited for the other"
    waiting.join(60)
    assert failures
    assert all(torch.equal(a, b) for a, b in zip(buckets, snapshot.buckets, strict=True))


def test_a_superseded_transfer_does_not_touch_the_buffers_of_the_next(tmp_path: Path) -> None:
    models = [make_model(seed=seed) for seed in range(2)]
    snapshots = [make_snapshot(each.named_parameters(), dtype=torch.float32, bucket_bytes=40_000) for each in models]
    for index, model in enumerate(models):
        save_weights(tmp_path / f"v{index}", model.named_parameters(), {})
    receiver = Receiver(torch.device("cpu"))
    outcomes: list[str] = []

    def receive(index: int) -> None:
        request = rollout_pb2.ReceiveWeightsRequest(disk_path=str(tmp_path / f"v{index}"))
        try:
            receiver.receive(snapshots[index].plan, request, 10.0)
            outcomes.append(f"v{index}")
        except TransientError as error:
            outcomes.append(str(error))

    # Somebody still fills the buffers while both come.
    receiver._busy.acquire()
    threads = [threading.Thread(target=receive, args=(index,)) for index in range(2)]
    for index, thread in enumerate(threads):
        thread.start()
        while receiver._turn <= index:  # The one has come before the other.
            time.sleep(0.005)
    receiver._busy.release()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["another transfer has begun", "v1"]
    found = receiver._buffers[1]
    assert all(torch.equal(a, b) for a, b in zip(found, snapshots[1].buckets, strict=True))


def test_a_transfer_waits_for_the_one_before_no_longer_than_its_deadline(tmp_path: Path) -> None:
    model = make_model()
    snapshot = make_snapshot(model.named_parameters(), dtype=torch.float32)
    receiver = Receiver(torch.device("cpu"))
    with receiver._busy, pytest.raises(TransientError, match="did not end in time"):
        receiver.receive(snapshot.plan, rollout_pb2.ReceiveWeightsRequest(disk_path=str(tmp_path)), 0.2)
