"""Groups of a real replica that are no longer needed: too old to be trained, or ended elsewhere."""

import asyncio
from pathlib import Path

from headrace.wire.contracts import DropReason, Tombstone, decode
from headrace.wire.rundir.events import read_events
from headrace.wire.streams import StreamName
from tests.integration.rollout.world import World, replica
from tests.waiting import until_async

LONG = 3000
"""Tokens: it outlives two publications."""


def tombstones(world: World) -> list[tuple[int, Tombstone]]:
    messages = [decode(data) for data in world.broker.streams[StreamName.SCORED].entries.values()]
    return [(one.header.group_index, one.body) for one in messages if isinstance(one.body, Tombstone)]


async def overtaken(world: World) -> None:
    """A group that began under version 0 runs on under version 2; the bound is 1."""
    await world.publish(0)
    await world.begin(0, 30, max_tokens=LONG)
    await world.publish(1)
    await world.publish(2)
    assert world.pending == 1


async def test_with_drop_a_group_that_is_too_old_gets_its_fate_first_and_is_aborted_then(tmp_path: Path) -> None:
    async with replica(tmp_path, stale="drop") as world:
        await overtaken(world)
        await until_async(lambda: tombstones(world))
        ((index, told),) = tombstones(world)
        assert (index, told.reason, told.service) == (0, DropReason.STALE, "rollout")
        assert len(told.lengths) == 3 and min(told.lengths) >= 10 and "version 0" in told.detail
        # Nobody has journaled it yet: it goes on, is still ours, and is not told twice.
        await asyncio.sleep(1.2)
        assert world.engine.stats().groups == 1 and world.pending == 1 and len(tombstones(world)) == 1
        world.listener.ended.add(0)
        await until_async(lambda: world.pending == 0 and world.engine.stats().groups == 0)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
        # The rows are free for others.
        await world.issue(1)
        ((header, _),) = await world.rollouts(1)
        assert header.group_index == 1
    (event,) = [one for one in read_events(tmp_path) if one["event"] == "group_aborted"]
    assert event["group_id"] == "test/g00000000" and "fate" in event["reason"]


async def test_with_wait_no_group_is_given_up_for_its_age(tmp_path: Path) -> None:
    async with replica(tmp_path, stale="wait") as world:
        await overtaken(world)
        await world.rollouts(1)
        assert tombstones(world) == [] and world.listener.told == {0}


async def test_with_drop_a_group_within_the_bound_is_not_given_up(tmp_path: Path) -> None:
    async with replica(tmp_path, stale="drop") as world:
        await world.publish(0)
        await world.begin(0, 30, max_tokens=1500)
        await world.publish(1)
        await world.rollouts(1)
        assert tombstones(world) == []


async def test_a_group_that_ended_elsewhere_is_aborted_under_every_staleness_policy(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        await world.begin(0, 30, max_tokens=LONG)
        world.listener.ended.add(0)
        await until_async(lambda: world.pending == 0)
        await world.go_on()
        await until_async(lambda: world.engine.stats().groups == 0)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
