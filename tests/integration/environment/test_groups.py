"""Groups of episodes from the stream to the stream: slots, held groups, lost workers' leases, a broken environment."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.services.environment.health import EnvironmentHealth, EnvironmentOutageError
from headrace.services.environment.service import EpisodeGroups
from headrace.wire.contracts import DropReason, FinishReason, Message, RolloutGroup, Tombstone, decode, encode
from headrace.wire.process.users_code import FIRST_GROUPS
from headrace.wire.rundir.events import EventLog, read_events
from headrace.wire.streams import StreamName
from headrace.wire.streams.worker import HandBack, Worker
from headrace.wire.v1 import rollout_pb2 as pb
from tests import builders
from tests.integration.environment.stage import Stage, played, stage
from tests.memory_broker import MemoryBroker
from tests.waiting import until_async

pytestmark = pytest.mark.timeout(400)
SUM = {"a": 0, "b": 45}


def counting(text: str, request: pb.SampleRequest) -> str:
    return str(44 + request.turn)


class Works:
    """A worker on streams in memory."""

    def __init__(
        self,
        it: Stage,
        folder: Path,
        *,
        limit: int = 1,
        hold_s: float = 30.0,
        digest: str = "d",
    ) -> None:
        self.broker, self.stop = MemoryBroker(), asyncio.Event()
        self.played: list[RolloutGroup] = []
        self.groups = EpisodeGroups(
            *(it.player, it.pool, it.directory, EventLog(folder, "environment-0", "a")),
            worker_id="environment-0",
            digest=digest,
            limit=limit,
            hold_s=hold_s,
            outcome=self.played.append,
        )
        self.worker = Worker(
            *(self.broker, StreamName.EPISODES, "environment-0", self.groups.handle),
            service="environment",
            lease_s=30.0,
            capacity=self.groups.capacity,
            failure=DropReason.ROLLOUT_FAILED,
        )

    async def issue(self, index: int, task: dict[str, Any] = SUM, *, trace: str = "", **options: Any) -> None:
        header = replace(builders.header(index), traceparent=trace)
        message = Message(header=header, body=played(task, **options))
        await self.broker.add(StreamName.EPISODES, encode(message))

    async def rollouts(self, count: int) -> list[RolloutGroup]:
        made = self.broker.streams[StreamName.ROLLOUTS]
        await until_async(lambda: made.added >= count)
        bodies = [decode(data).body for data in made.entries.values()]
        return [body for body in bodies if isinstance(body, RolloutGroup)]


async def working(stack: AsyncExitStack, works: Works) -> None:
    task = asyncio.create_task(works.worker.run(works.stop))

    async def end() -> None:
        works.stop.set()
        await task

    stack.push_async_callback(end)


async def test_all_rollouts_of_a_group_are_played_and_leave_as_one(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder") as it, AsyncExitStack() as stack:
        works = Works(it, tmp_path)
        await working(stack, works)
        await works.issue(3, size=4)
        (group,) = await works.rollouts(1)
        assert [one.rollout_id for one in group.rollouts] == [f"test/g00000003/{n}" for n in range(4)]
        assert {one.finish_reason for one in group.rollouts} == {FinishReason.STOP}
        assert group.replica_id == "environment-0" and len(works.played) == 1
        assert len({request.sampling.seed for request in it.replicas["rollout-0"].asked}) == 8
    (event,) = [one for one in read_events(tmp_path) if one["event"] == "group_generated"]
    assert event["group_id"] == "test/g00000003" and event["source"] == "environment-0-a"


async def test_an_episode_whose_process_is_killed_is_played_again_with_the_same_turns(tmp_path: Path) -> None:
    game = {"environment": "games:Adder", "isolated": True}
    async with stage(tmp_path, counting, **game) as it, AsyncExitStack() as stack:
        works, replica = Works(it, tmp_path), it.replicas["rollout-0"]
        await working(stack, works)
        replica.hold = asyncio.Event()
        await works.issue(0)
        await until_async(lambda: len(replica.asked) == 1)
        (child,) = it.pool._children
        os.killpg(child.pid, signal.SIGKILL)  # With the process in its sandbox, which might answer once more.
        replica.hold.set()
        (group,) = await works.rollouts(1)
        (rollout,) = group.rollouts
        assert rollout.finish_reason is FinishReason.STOP and rollout.text == "45"
        assert [request.turn for request in replica.asked] == [0, 0, 1] and replica.asked[0] == replica.asked[1]


def calls(name: str, **arguments: object) -> Callable[[str, pb.SampleRequest], str]:
    """A policy that calls a tool in its first turn, and has enough then."""

    def says(text: str, request: pb.SampleRequest) -> str:
        call = json.dumps({"name": name, "arguments": arguments})
        return f"<tool_call>{call}</tool_call>" if request.turn == 0 else "enough"

    return says


async def test_a_group_that_waits_for_weights_takes_no_slot(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, slots=1, environment="games:Adder") as it, AsyncExitStack() as stack:
        works = Works(it, tmp_path)
        await working(stack, works)
        await works.issue(0, min_version=1)
        await works.issue(1, min_version=1)
        await works.issue(2)  # As an evaluation of the version that serves.
        (group,) = await works.rollouts(1)
        assert group.rollouts[0].rollout_id == "test/g00000002/0"
        it.place("rollout-0", version=1)
        await works.rollouts(3)


async def test_a_group_that_waited_for_weights_is_taken_again_in_the_order_of_the_stream(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder") as it:
        works = Works(it, tmp_path)
        later = Message(header=builders.header(12), body=played(SUM, min_version=2))
        held = asyncio.create_task(works.groups.handle(later))
        await until_async(lambda: works.groups.capacity(1) == 1)
        it.place("rollout-0", version=2)
        # Not played at once, though there is room: earlier ones may be in the stream, for which the trainer waits.
        with pytest.raises(HandBack, match="weights of version 2 are served"):
            await held
        assert not it.replicas["rollout-0"].asked
        assert await works.groups.handle(later)


async def test_a_group_whose_weights_do_not_come_is_handed_back(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder") as it, AsyncExitStack() as stack:
        works = Works(it, tmp_path, hold_s=0.05)
        await working(stack, works)
        await works.issue(0, min_version=1)
        episodes = works.broker.streams[StreamName.EPISODES]
        await until_async(lambda: episodes.delivered >= 1)
        it.place("rollout-0", version=1)
        await works.rollouts(1)


async def test_nothing_is_taken_while_no_replica_serves(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder") as it, AsyncExitStack() as stack:
        it.place("rollout-0", takes=False)
        works = Works(it, tmp_path)
        await working(stack, works)
        await works.issue(0)
        await asyncio.sleep(0.1)
        assert works.broker.streams[StreamName.EPISODES].delivered == 0
        it.place("rollout-0", takes=True)
        await works.rollouts(1)


async def test_a_group_of_another_environment_is_buried_not_played(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder") as it, AsyncExitStack() as stack:
        works = Works(it, tmp_path, digest="changed")
        await working(stack, works)
        await works.issue(0)
        scored = works.broker.streams[StreamName.SCORED]
        await until_async(lambda: scored.added >= 1)
        (data,) = scored.entries.values()
        body = decode(data).body
        assert (
            isinstance(body, Tombstone)
            and body.reason is DropReason.POISON
            and "this worker has changed" in body.detail
        )
        assert not it.replicas["rollout-0"].asked


async def test_a_worker_that_stops_hands_its_episodes_back_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder") as it:
        replica = it.replicas["rollout-0"]
        replica.hold = asyncio.Event()
        works = Works(it, tmp_path)
        async with AsyncExitStack() as stack:
            await working(stack, works)
            await works.issue(0, size=2)
            await until_async(lambda: len(replica.asked) == 2)
        other = works.broker.consumer(StreamName.EPISODES, "environment-1", lease_s=30)
        assert len(await other.read(count=1, block_s=0.1)) == 1
        assert works.broker.streams[StreamName.ROLLOUTS].added == 0


async def test_a_child_that_cannot_start_costs_episodes_and_not_the_worker(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1000)\n")
    config = {"environment": "slow:Game", "path": tmp_path, "start_s": 3.0, "isolated": True}
    async with stage(tmp_path, counting, **config) as it, AsyncExitStack() as stack:
        works = Works(it, tmp_path)
        await working(stack, works)
        await works.issue(0, size=2)
        (group,) = await works.rollouts(1)
        assert {one.finish_reason for one in group.rollouts} == {FinishReason.ENVIRONMENT_ERROR}
        errors = [one.episode.error for one in group.rollouts if one.episode]
        assert all("for the environment to be loaded (environment.start_s)" in error for error in errors), errors


def failed(
    error: str = "KeyError: 'x' (game.py:3)", reason: FinishReason = FinishReason.ENVIRONMENT_ERROR
) -> RolloutGroup:
    group = builders.played_group()
    rollouts = tuple(builders.lost_rollout(member=n) for n in range(2))
    assert rollouts[0].episode is not None
    episode = replace(rollouts[0].episode, error=error)
    lost = tuple(replace(one, finish_reason=reason, episode=episode) for one in rollouts)
    return replace(group, rollouts=lost)


@pytest.mark.parametrize("reason", [FinishReason.ENVIRONMENT_ERROR, FinishReason.TOOL_LOST])
def test_an_environment_that_fails_the_first_groups_alike_ends_the_run_and_is_named(reason: FinishReason) -> None:
    health = EnvironmentHealth(outage_s=300)
    for _ in range(FIRST_GROUPS - 1):
        health.take(failed(reason=reason), 0.0)
    with pytest.raises(
        EnvironmentOutageError, match=r"first 3 groups failed in the environment: KeyError: 'x' \(game.py:3\)"
    ):
        health.take(failed(reason=reason), 1.0)
