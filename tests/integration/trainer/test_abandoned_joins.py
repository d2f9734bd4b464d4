"""A receiver to which NCCL's connection never comes about: threads that hang are counted, told, and limited.

Publisher, gRPC, rendezvous store and threads are real; NCCL's group, which needs GPUs, is one whose first broadcast
never returns, as `ncclCommInitRank` does when its peer has died.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY

from headrace.services.trainer.publication.abandoned import MOST_OF_A_REPLICA
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.service import SERVICE_NAME, TrainerServicer
from headrace.wire.errors import TransientError
from headrace.wire.peers.rpc import call, channel, serve
from headrace.wire.v1 import trainer_pb2 as pb
from headrace.wire.v1 import trainer_pb2_grpc
from headrace.wire.weights import collective
from tests.integration.trainer.test_publisher import backend, publisher

DEADLINE_S = 0.2
VERSION = 5


class Hanging:
    """NCCL's group, as far as it is used."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def broadcast(self, tensors: list[Any], options: Any) -> Any:
        self.go_on.wait()
        raise RuntimeError("the communicator was aborted")

    def abort(self) -> None:
        pass


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Hanging]]:
    """The groups that were made; all hang."""
    made: list[Hanging] = []

    def make(*_: Any) -> Hanging:
        made.append(Hanging())
        return made[-1]

    monkeypatch.setattr(collective, "_open", make)
    yield made
    for one in made:
        one.go_on.set()


class Office:
    """A trainer's publisher and its door."""

    def __init__(self, made: Publisher, stub: "trainer_pb2_grpc.TrainerServiceAsyncStub") -> None:
        self.publisher, self._stub = made, stub
        self._number = 0

    async def publish_to(self, replica_id: str) -> str:
        """Opens a group and sends over it, as the orchestrator does; returns the refusal or the error."""
        self._number += 1
        name = f"g-{self._number}"
        request = pb.OpenGroupRequest(version=VERSION, group_name=name, replica_id=replica_id)
        answer = await call(self._stub.OpenGroup, request, timeout_s=60, what="open")
        if answer.refused:
            assert not answer.store_port
            return str(answer.refused)
        send = pb.SendWeightsRequest(
            version=VERSION, group_name=name, backend="nccl", world_size=2, deadline_s=DEADLINE_S
        )
        with pytest.raises(TransientError) as raised:
            await call(self._stub.SendWeights, send, timeout_s=60, what="send")
        return str(raised.value)


@pytest.fixture
async def office(tmp_path: Any, nccl: list[Hanging]) -> Any:
    made = publisher(tmp_path)
    made.hold(backend(), VERSION)
    servicer = TrainerServicer(made, lambda: "")
    rpc = await serve({SERVICE_NAME: servicer.add_to}, "127.0.0.1", 0)
    connection = channel(f"127.0.0.1:{rpc.port}")
    yield Office(made, trainer_pb2_grpc.TrainerServiceStub(connection))
    await connection.close()
    await rpc.stop(0)


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(f"headrace_trainer_abandoned_{name}") or 0.0


def hanging_threads() -> int:
    return sum(thread.name == "connect-group" for thread in threading.enumerate())


async def test_after_some_that_hang_no_group_is_opened_to_that_replica_and_others_are_served(
    office: Office, nccl: list[Hanging]
) -> None:
    total = counted("joins_total")
    before = hanging_threads()
    for _ in range(MOST_OF_A_REPLICA):
        assert "a member did not connect" in await office.publish_to("rollout-0")
    refusals = [await office.publish_to("rollout-0") for _ in range(5)]
    assert len(set(refusals)) == 1 and refusals[0].startswith("3 joins of its collective groups hang in the trainer;")
    # It is bounded: what was refused has left no thread behind.
    assert hanging_threads() - before == len(nccl) == MOST_OF_A_REPLICA
    assert counted("joins_total") - total == counted("join_threads") == MOST_OF_A_REPLICA
    assert "a member did not connect" in await office.publish_to("rollout-1")
