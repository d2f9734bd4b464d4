"""Where a group is that the trainer waits for."""

import pytest

from headrace.services.orchestrator.issuing import group_locator
from headrace.services.orchestrator.issuing.group_locator import GroupLocator
from headrace.services.orchestrator.state.registry import Registry
from headrace.wire.contracts import Message, encode
from headrace.wire.streams import StreamName
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.builders import header, prompt
from tests.memory_broker import MemoryBroker


@pytest.fixture
def registry() -> Registry:
    return Registry(lease_s=60.0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    monkeypatch.setattr(group_locator, "_LOOK_AGAIN_S", 0.0)
    return MemoryBroker()


def generates(registry: Registry, replica: str, *groups: int) -> None:
    registry.register(pb.RegisterReplicaRequest(replica_id=replica, boot_id="b"), group_locator.time.monotonic())
    beat = pb.HeartbeatRequest(replica_id=replica, boot_id="b", state=pb.REPLICA_STATE_SERVING, groups=groups)
    assert registry.heartbeat(beat, group_locator.time.monotonic())


async def test_the_replica_that_generates_a_group_is_named(registry: Registry, broker: MemoryBroker) -> None:
    where = GroupLocator(registry, broker)
    generates(registry, "rollout-0", 3)
    generates(registry, "rollout-1", 4, 7)
    assert await where.of(7) == "rollout-1 generates it"
    generates(registry, "rollout-0", 7)
    assert await where.of(7) == "rollout-0 and rollout-1 generate it"


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (StreamName.EPISODES, "its episodes are not at their end"),
        (StreamName.PROMPTS, "no replica has begun it"),
        (StreamName.ROLLOUTS, "waits for its score"),
        (StreamName.SCORED, "on its way to the trainer"),
        (None, "it is in no stream, and will be issued again"),
    ],
)
async def test_a_group_that_no_replica_reports_is_looked_up_in_the_broker(
    registry: Registry, broker: MemoryBroker, stream: StreamName | None, words: str
) -> None:
    where = GroupLocator(registry, broker)
    if stream is not None:
        await broker.add(stream, b"damaged")
        await broker.add(stream, encode(Message(header=header(7), body=prompt())))
    assert await where.of(7) == ""  # It may just be moving on.
    assert words in await where.of(7)
