"""A replica is asked to go without haste: nothing more comes in, what it has goes out, and then it is told to end."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from headrace.services.rollout.replica.drain import drain_replica
from headrace.wire.access import process
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import make_tokens, token_of
from headrace.wire.http import HttpPolicy, serve_http
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams import StreamName
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.http_tokens import bearer
from tests.integration.rollout.world import World, replica, take
from tests.waiting import until_async


@asynccontextmanager
async def served(folder: Path, **options: Any) -> AsyncIterator[tuple[World, int]]:
    """A replica that serves version 0, beside another one, and the port of its HTTP API."""
    async with replica(folder, **options) as world:
        other = pb.RegisterReplicaRequest(replica_id="other", boot_id="o")
        world.listener.registry.register(other, time.monotonic())
        beat = pb.HeartbeatRequest(replica_id="other", boot_id="o", state=pb.REPLICA_STATE_SERVING)
        world.listener.registry.heartbeat(beat, time.monotonic())
        await world.publish(0)
        http = await serve_http(world.front.app(HttpPolicy.of(world.settings)), "127.0.0.1", 0)
        try:
            yield world, http.port
        finally:
            await http.stop()


def counted(world: World) -> tuple[int, float]:
    """How many replicas live, and what share of the prompts is the other's."""
    now, registry = time.monotonic(), world.listener.registry
    return len(registry.alive(now)), registry.share("other", now)


async def test_a_drained_replica_finishes_its_groups_and_takes_no_more(tmp_path: Path) -> None:
    async with served(tmp_path) as (world, port):
        await world.begin(0, 9, max_tokens=60)
        for index in range(1, 6):
            await world.issue(index)
        await until_async(lambda: world.front.in_flight == 3)
        assert world.front.why_not_ready() is None
        draining = asyncio.create_task(asyncio.to_thread(drain_replica, port, 60.0))
        await until_async(lambda: "draining" in str(world.front.why_not_ready()))
        assert (world.broker.streams[StreamName.ROLLOUTS].added, world.front.in_flight) == (0, 3)
        await world.go_on()
        assert (await draining, world.front.in_flight) == (0, 0)
        await asyncio.sleep(1.0)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 3, "it took another prompt"


async def test_the_run_counts_without_a_drained_replica_at_once(tmp_path: Path) -> None:
    # It reports changes at once, and all else once a minute.
    async with served(tmp_path, heartbeat_s=60.0) as (world, port):
        await until_async(lambda: counted(world) == (2, 0.5))
        await world.begin(0, 9, max_tokens=60)
        assert await asyncio.to_thread(drain_replica, port, 0.0) == 1
        await until_async(lambda: counted(world)[1] == 1.0)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0, "it was told only when it had finished"
        await world.issue(1)
        await world.go_on()
        await world.rollouts(1)
        await asyncio.sleep(1.0)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 1, "a read under way brought another prompt"


async def test_a_publication_in_progress_ends_before_the_drain(tmp_path: Path) -> None:
    async with served(tmp_path) as (world, port):
        snapshot = take(world.model)
        await world.prepare("p1", 1, snapshot)
        await asyncio.to_thread(drain_replica, port, 0.0)
        assert (await world.state())[0] == "UPDATING" and counted(world)[0] == 2
        await world.receive("p1", snapshot)
        assert (await world.verify("p1")).equal
        await world.commit("p1")
        await until_async(lambda: counted(world)[1] == 1.0)


async def test_a_replica_takes_the_share_that_the_orchestrator_answers_and_reports_its_speed(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        world.listener.word = pb.HeartbeatResponse(share=1 / 8)  # Of 16 groups; its rows alone would take 3.
        seen = len(world.listener.states)
        await until_async(lambda: len(world.listener.states) > seen + 2)
        await world.begin(0, 9, max_tokens=60)
        for index in range(1, 6):
            await world.issue(index)
        await until_async(lambda: world.pending == 2)
        await asyncio.sleep(0.5)
        assert world.pending == 2
        world.listener.word = pb.HeartbeatResponse(share=1.0)
        await until_async(lambda: world.pending == 3)
        await world.go_on()
        await world.rollouts(6)
        await until_async(lambda: world.listener.registry.alive(time.monotonic())[0].beat.speed > 0)


async def test_only_a_token_of_the_service_or_of_an_operator_opens_the_drain(tmp_path: Path) -> None:
    tokens = RunPaths(tmp_path / "access").tokens
    async with served(tmp_path) as (world, port), httpx.AsyncClient(trust_env=False) as http:
        make_tokens(tokens)
        process.use(Role.ROLLOUT, tokens, makes=False)
        try:
            for role in sorted(Role, key=lambda role: role in (Role.ROLLOUT, Role.OPERATOR)):
                may = role in (Role.ROLLOUT, Role.OPERATOR)
                headers = bearer(token_of(tokens, role))
                answer = await http.post(f"http://127.0.0.1:{port}/drain", json={}, headers=headers)
                assert answer.status_code == (200 if may else 401), role
                assert ("draining" in str(world.front.why_not_ready())) is may
        finally:
            process.forget()


async def test_the_engine_ends_with_the_run_and_the_process_stays(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        world.listener.word.finished = True
        # A replica of a run that is resumed: its trainer has not registered yet.
        await until_async(lambda: len(world.listener.states) > 5)
        assert not world.engine._thread.join(0)
        await world.publish(0)
        await until_async(lambda: world.listener.states[-1] == pb.REPLICA_STATE_GONE)
        await until_async(lambda: world.engine._thread.join(0))
        assert not world.running.done()
