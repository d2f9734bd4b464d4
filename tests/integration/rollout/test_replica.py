"""One replica for real: gRPC on loopback, weights over gloo and disk, prompts and rollouts over a stream."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from headrace.services.orchestrator.state.registry import Registry
from headrace.wire.contracts import decode
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.rundir.events import read_events
from headrace.wire.streams import StreamName
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import rollout_pb2
from tests.integration.rollout.world import outcomes, replica, take
from tests.rollout_models import make_model, reference_logprobs
from tests.waiting import until_async


async def test_prompts_become_rollouts_once_verified_weights_are_committed(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        for index in range(5):
            await world.issue(index)
        await asyncio.sleep(0.2)
        assert await world.state() == ("PENDING_WEIGHTS", 0)
        assert world.broker.streams[StreamName.PROMPTS].delivered == 0
        snapshot = await world.publish(0)
        assert await world.state() == ("SERVING", 0)
        groups = await world.rollouts(5)
        assert sorted(header.group_index for header, _ in groups) == list(range(5))
        for header, group in groups:
            for index, rollout in enumerate(group.rollouts):
                assert rollout.rollout_id == f"{header.group_id}/{index}"
                assert [span.weights_digest for span in rollout.spans] == [snapshot.plan.weights_digest]
                wanted, _ = reference_logprobs(world.model, group.prompt.token_ids.tolist(), rollout.token_ids)
                np.testing.assert_allclose(rollout.logprobs, wanted, atol=1e-4)
                assert rollout.text and "<eos>" not in rollout.text
        await until_async(lambda: world.pending == 0)
    events = list(read_events(tmp_path))
    assert [event["event"] for event in events] == ["weights_committed", *["group_generated"] * 5]
    assert events[0]["digest"] == snapshot.plan.weights_digest
    assert world.listener.states[-1] == pb.REPLICA_STATE_GONE


async def test_the_gate_lets_nothing_in_or_out_during_a_publication(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        await world.begin(0, 9, max_tokens=60)
        snapshot = take(world.model)
        await world.prepare("p1", 1, snapshot)
        await world.issue(1)
        await world.go_on()
        await until_async(lambda: world.engine.stats().rollouts == 0)  # It is ready to go out.
        await asyncio.sleep(0.2)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
        await world.receive("p1", snapshot)
        assert (await world.verify("p1")).equal
        assert (await world.state())[0] == "UPDATING"
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
        await world.commit("p1")
        await world.rollouts(2)
        assert await world.state() == ("SERVING", 1)


async def test_a_running_group_is_retracted_and_its_spans_say_so(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        old = world.model
        await world.begin(0, 600, max_tokens=1000)
        world.model = make_model(seed=1)
        await world.publish(1)
        ((_, group),) = await world.rollouts(1, 20)
        prompt = group.prompt.token_ids.tolist()
        spans = group.rollouts[0].spans
        assert [span.version.version for span in spans] == [0, 1]
        for rollout in group.rollouts:
            before, _ = reference_logprobs(old, prompt, rollout.token_ids)
            after, _ = reference_logprobs(world.model, prompt, rollout.token_ids)
            for span in rollout.spans:
                wanted = (before, after)[span.version.version][span.start : span.end]
                np.testing.assert_allclose(rollout.logprobs[span.start : span.end], wanted, atol=1e-4)


async def test_damaged_weights_are_quarantined_until_the_next_publication(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        before = outcomes("handed_back")
        await world.publish(0)
        await world.issue(0, max_tokens=2000)
        await until_async(lambda: world.pending == 1)
        snapshot = take(world.model)
        await world.prepare("p1", 1, snapshot)
        snapshot.buckets[0][100] ^= 1
        digests = await world.receive("p1", snapshot)
        assert digests != [bucket.digest for bucket in snapshot.plan.buckets]
        assert not (await world.verify("p1")).equal
        assert (await world.state())[0] == "QUARANTINED"
        await until_async(lambda: outcomes("handed_back") == before + 1)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
        with pytest.raises(ContractError, match="no open update session"):
            await world.commit("p1")
        await world.publish(2)
        await world.rollouts(1)


DYING_SENDER = """
import os, signal, sys
from headrace.wire.weights import CollectiveGroup, open_store
store, port = open_store("127.0.0.1")
print(port, flush=True)
CollectiveGroup.join("dying", "gloo", "127.0.0.1", port, 0, 2, 20)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_sender_that_dies_in_the_transfer_leaves_the_old_weights_serving(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        with subprocess.Popen([sys.executable, "-c", DYING_SENDER], stdout=subprocess.PIPE) as sender:
            assert sender.stdout is not None
            port = int(await asyncio.to_thread(sender.stdout.readline))
            # Only now: a busy machine may need as long for the sender's imports as a session lasts.
            await world.prepare("p1", 1, take(world.model))
            group = rollout_pb2.CollectiveGroup(
                name="dying", backend="gloo", store_host="127.0.0.1", store_port=port, rank=1, world_size=2
            )
            request = rollout_pb2.ReceiveWeightsRequest(publication_id="p1", collective=group, deadline_s=3)
            # By the replica's own word: this call's deadline, which comes later, names no group.
            with pytest.raises(TransientError, match=r"ReceiveWeights: .* the group dying"):
                await world.ask("ReceiveWeights", request, timeout_s=120.0)
        # The same session may be sent to again, over a fresh group.
        snapshot = take(world.model)
        assert await world.receive("p1", snapshot, "p1-again") == [each.digest for each in snapshot.plan.buckets]
        await world.abort("p1")
        assert await world.state() == ("SERVING", 0)
        await world.issue(0)
        await world.rollouts(1)


async def test_an_abandoned_session_ends_at_its_own_deadline(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        await world.prepare("lost", 1, take(world.model), deadline_s=2.0)
        assert (await world.state())[0] == "UPDATING"
        async with asyncio.timeout(20):  # One of the usual length would last longer.
            while await world.state() != ("SERVING", 0):
                await asyncio.sleep(0.05)


async def test_a_prompt_ahead_of_the_weights_is_held_then_handed_back(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        before = outcomes("handed_back")
        await world.issue(0, min_version=1)
        await until_async(lambda: outcomes("handed_back") > before)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
        await world.publish(1)
        ((_, group),) = await world.rollouts(1)
        assert group.min_version == 1


async def test_held_prompts_do_not_block_later_ones(tmp_path: Path) -> None:
    async with replica(tmp_path, hold_s=3.0) as world:
        await world.publish(0)
        for index in range(20):
            await world.issue(index, min_version=1)
        await world.issue(20)
        ((header, _),) = await world.rollouts(1)
        assert header.group_index == 20
        await world.publish(1)
        groups = await world.rollouts(21)
        assert len({header.group_index for header, _ in groups}) == 21
        await until_async(lambda: world.pending == 0)


async def test_a_replica_takes_groups_until_as_many_rollouts_wait_as_it_has_rows(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(1)
        await world.begin(0, 1, max_tokens=200)
        for index in range(1, 8):
            await world.issue(index)
        # Three of the six rows are busy; the engine is paused, and two groups of three wait.
        await until_async(lambda: world.pending == 3)
        await asyncio.sleep(0.3)
        assert world.pending == 3 and world.engine.stats().waiting == 6
        await world.go_on()
        await world.rollouts(8)


async def test_a_prompt_that_can_never_be_generated_is_buried(tmp_path: Path) -> None:
    async with replica(tmp_path, context_length=32) as world:
        await world.publish(0)
        await world.issue(0, prompt_tokens=32)
        await until_async(lambda: world.broker.streams[StreamName.SCORED].added == 1)
        (tombstone,) = [decode(data) for data in world.broker.streams[StreamName.SCORED].entries.values()]
        assert "context_overflow" in tombstone.body.detail  # type: ignore[union-attr]


async def test_a_forgotten_replica_registers_again(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        world.listener.registry = Registry(lease_s=5.0)
        await asyncio.wait_for(world.listener.addresses.get(), 5)
        await until_async(
            lambda: (
                [each.state for each in world.listener.registry.alive(time.monotonic())]
                == [pb.REPLICA_STATE_PENDING_WEIGHTS]
            )
        )
