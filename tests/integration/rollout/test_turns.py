"""A replica that shares its GPU with a trainer: asleep it holds no memory, and a publication wakes it as it was."""

import asyncio
import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from headrace.services.rollout.chat.chat import Kind
from headrace.wire.errors import ContractError
from headrace.wire.host.gpu_lock import GpuLock
from headrace.wire.rundir.events import read_events
from headrace.wire.streams import StreamName
from headrace.wire.v1 import rollout_pb2
from tests.integration.rollout.world import World, outcomes, replica, take
from tests.waiting import until_async


async def sleep(world: World) -> Any:
    return await world.ask("Sleep", rollout_pb2.SleepRequest())


def memory(world: World) -> list[Any]:
    """Weak references to the engine's weights and cache."""
    core, cache = world.engine._thread.core, world.engine._cache
    assert core is not None and cache is not None
    return [weakref.ref(cache._all), *(weakref.ref(layer.qkv) for layer in core._model.weights.layers)]


async def test_a_sleeping_engine_holds_no_weights_or_cache_and_wakes_bit_equal(tmp_path: Path) -> None:
    async with replica(tmp_path, gpu_sharing="turns", deterministic=True) as world:
        await world.publish(0)
        await world.issue(0)
        await world.rollouts(1)
        held, before = memory(world), world.engine.stats()
        trainer = GpuLock(tmp_path, 0, "trainer")
        assert not trainer.try_take()
        assert (await sleep(world)).asleep
        gc.collect()
        assert [reference() for reference in held] == [None] * len(held)
        assert await world.state() == ("SLEEPING", 0)
        assert trainer.try_take()
        assert world.engine.stats().generated_tokens == before.generated_tokens > 0
        assert (await sleep(world)).asleep  # Again: nothing changes.
        trainer.give()
        await world.publish(1)
        assert not trainer.try_take()
        await world.issue(0)  # The same prompt and seeds.
        (_, first), (_, second) = await world.rollouts(2)
        for one, other in zip(first.rollouts, second.rollouts, strict=True):
            assert one.token_ids.tobytes() == other.token_ids.tobytes()
            assert one.logprobs.tobytes() == other.logprobs.tobytes()
        assert world.engine.stats().generated_tokens == 2 * before.generated_tokens
    told = [event["event"] for event in read_events(tmp_path)]
    assert told[:4] == ["weights_committed", "group_generated", "engine_asleep", "engine_awake"]


async def test_groups_running_at_sleep_are_handed_back_and_generated_after_waking(tmp_path: Path) -> None:
    async with replica(tmp_path, gpu_sharing="turns") as world:
        await world.publish(0)
        await world.begin(0, 9, max_tokens=60)
        before = outcomes("handed_back")
        assert (await sleep(world)).asleep
        await until_async(lambda: outcomes("handed_back") > before)
        await asyncio.sleep(0.3)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
        await world.publish(1)
        ((_, group),) = await world.rollouts(1)
        assert {span.version.version for rollout in group.rollouts for span in rollout.spans} == {1}


async def test_a_waking_replica_names_the_trainer_that_holds_the_gpu(tmp_path: Path) -> None:
    async with replica(tmp_path, gpu_sharing="turns") as world:
        await world.publish(0)
        await sleep(world)
        trainer = GpuLock(tmp_path, 0, "trainer")
        trainer.try_take()
        snapshot = take(world.model)
        request = rollout_pb2.PrepareWeightsRequest(
            publication_id="p1", plan=snapshot.plan, deadline_s=30.0, prepare_s=0.3
        )
        request.version.incarnation, request.version.version = 1, 1
        answer = await world.ask("PrepareWeights", request)
        assert not answer.accepted and "GPU 0 of the run, which trainer (pid" in answer.reason
        assert (await world.state())[0] == "PENDING_WEIGHTS"
        assert (await sleep(world)).asleep  # Whoever missed its publication sleeps as well as any.
        trainer.give()
        await world.publish(2)
        assert await world.state() == ("SERVING", 2)


async def test_an_engine_that_finds_no_room_sleeps_on_until_the_next_publication(tmp_path: Path) -> None:
    async with replica(tmp_path, gpu_sharing="turns") as world:
        await world.publish(0)
        await sleep(world)
        make, full = world.engine._make_cache, torch.OutOfMemoryError("CUDA out of memory")

        def no_room() -> Any:
            raise full

        world.engine._make_cache = no_room  # type: ignore[method-assign]
        answer = await world.prepare("p1", 1, take(world.model))
        assert not answer.accepted and "no room for the engine's cache: CUDA out of memory" in answer.reason
        trainer = GpuLock(tmp_path, 0, "trainer")
        assert trainer.try_take()
        trainer.give()
        world.engine._make_cache = make  # type: ignore[method-assign]
        await world.publish(2)
        assert await world.state() == ("SERVING", 2)


async def test_a_replica_does_not_sleep_during_a_publication(tmp_path: Path) -> None:
    async with replica(tmp_path, gpu_sharing="turns") as world:
        await world.publish(0)
        snapshot = take(world.model)
        await world.prepare("p1", 1, snapshot)
        answer = await sleep(world)
        assert not answer.asleep and answer.reason == "the replica is updating"
        await world.abort("p1")
        assert (await sleep(world)).asleep


async def test_a_chat_never_waits_for_a_sleeping_replica(tmp_path: Path) -> None:
    async with replica(tmp_path, gpu_sharing="turns") as world:
        await world.publish(0)
        await sleep(world)
        messages = json.dumps([{"role": "user", "content": "a"}])
        asked = rollout_pb2.ChatRequest(messages_json=messages, max_tokens=4, deadline_s=30, wait_s=30)
        pieces = [piece async for piece in world.stub.Chat(asked, timeout=5)]
        assert pieces[-1].refusal.kind == Kind.KIND_UNAVAILABLE
        assert pieces[-1].refusal.reason == "rollout-0 is sleeping"


async def test_a_replica_with_a_gpu_of_its_own_is_never_put_to_sleep(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        with pytest.raises(ContractError, match=r"rollout\.gpu_sharing"):
            await sleep(world)
        assert await world.state() == ("SERVING", 0)
        assert not list(tmp_path.glob("run/gpu-*"))
