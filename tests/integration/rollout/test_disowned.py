"""Weights that were never published are disowned by the replica that has them, and it is published to again."""

from pathlib import Path

import pytest

from headrace.wire.errors import FencedError
from headrace.wire.v1 import message_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.integration.rollout.world import replica
from tests.waiting import until_async

FOREIGN = message_pb2.PolicyVersion(incarnation=9, version=1007)


async def test_a_replica_stops_serving_disowned_weights_and_installs_the_published_ones(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(1007, incarnation=9)
        assert await world.state() == ("SERVING", 1007)
        with pytest.raises(FencedError):
            await world.publish(3)
        word = pb.HeartbeatResponse(disown=FOREIGN, disown_reason="it was never published", incarnation=1)
        world.listener.word = word
        await until_async(lambda: world.listener.states[-1] == pb.REPLICA_STATE_QUARANTINED)
        assert (await world.state())[0] == "QUARANTINED"
        await world.publish(3)
        assert await world.state() == ("SERVING", 3)
        # The same word again is of weights that it no longer has.
        seen = len(world.listener.states)
        await until_async(lambda: len(world.listener.states) > seen + 2)
        assert await world.state() == ("SERVING", 3)


async def test_a_fence_above_all_incarnations_is_lowered(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(3)
        snapshot = await world.publish(4)
        await world.prepare("foreign", 5, snapshot, incarnation=2**31)
        await world.abort("foreign")
        with pytest.raises(FencedError):
            await world.publish(5)
        world.listener.word = pb.HeartbeatResponse(incarnation=1)
        seen = len(world.listener.states)
        await until_async(lambda: len(world.listener.states) > seen + 2)
        await world.publish(5)
        assert await world.state() == ("SERVING", 5)
