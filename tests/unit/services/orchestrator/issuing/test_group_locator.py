"""Where a group is that the trainer waits for."""

import pytest

from headrace.services.orchestrator.issuing import group_locator
from headrace.services.orchestrator.issuing.group_locator import GroupLocator
from headrace.services.orchestrator.state.environment_workers import EnvironmentWorkers
from headrace.services.orchestrator.state.registry import Registry
from headrace.wire.contracts import Message, encode
from headrace.wire.errors import TransientError
from headrace.wire.streams import StreamName
from headrace.wire.streams.memory import MemoryBroker
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.builders import header, prompt


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


async def test_a_replica_that_generates_it_is_named(registry: Registry, broker: MemoryBroker) -> None:
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
async def test_else_the_broker_is_asked(
    registry: Registry, broker: MemoryBroker, stream: StreamName | None, words: str
) -> None:
    where = GroupLocator(registry, broker)
    if stream is not None:
        await broker.add(stream, b"damaged")
        await broker.add(stream, encode(Message(header=header(7), body=prompt())))
    assert await where.of(7) == ""  # It may just be moving on.
    assert words in await where.of(7)


async def test_a_broker_that_is_away_is_reported(
    registry: Registry, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(stream: StreamName) -> list[bytes]:
        raise TransientError("no broker")

    monkeypatch.setattr(broker, "live", away)
    where = GroupLocator(registry, broker)
    await where.of(7)
    assert await where.of(7) == "its place is unknown: no broker"


async def test_a_worker_that_plays_it_is_named_with_the_episode_and_what_it_waits_for(
    registry: Registry, broker: MemoryBroker
) -> None:
    workers = EnvironmentWorkers(lease_s=60.0)
    episode = pb.EpisodeInHand(id="r/g7/1", group_index=7, kind="tool", waits_for="the tools search", seconds=12.0)
    workers.report(
        pb.ReportEpisodesRequest(worker_id="environment-0", episodes=[episode]), group_locator.time.monotonic()
    )
    where = GroupLocator(registry, broker, environments=workers)
    assert (await where.of(7)).startswith("environment-0 plays it: r/g7/1 waits for the tools search, 1")
