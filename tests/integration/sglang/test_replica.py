"""The whole replica on the real server: prompts in, verified rollouts out, and servers that lie."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.rollout.app import run_replica
from headrace.services.rollout.engines.sglang.start import start_engine
from headrace.services.rollout.replica.http_server import ReplicaHttpServer
from headrace.services.rollout.text import TextDecoder
from headrace.wire.peers.rpc import channel, serve
from headrace.wire.process.lifecycle import Shutdown
from headrace.wire.streams import StreamName
from headrace.wire.v1 import common_pb2, rollout_pb2
from headrace.wire.v1.rollout_pb2_grpc import RolloutServiceStub
from headrace.wire.weights import Snapshot, save_weights
from tests.integration.rollout.world import CANARY, Listener, World, outcomes
from tests.memory_broker import MemoryBroker
from tests.rollout_models import SPECIAL, make_model, reference_logprobs
from tests.sglang import Server, Trainer, attached, expected_checksums, take
from tests.waiting import until_async

pytestmark = pytest.mark.sglang


class Replica(World):
    """Publishes as the orchestrator and the trainer do."""

    trainer: Trainer

    async def transfer(self, publication: str, snapshot: Snapshot) -> None:
        sending = asyncio.create_task(asyncio.to_thread(self.trainer.send, snapshot))
        request = rollout_pb2.ReceiveWeightsRequest(
            publication_id=publication, collective=self.trainer.source, deadline_s=10
        )
        assert not (await self.ask("ReceiveWeights", request)).digests
        await sending

    async def prove(self, publication: str, *, checksums: bool = True) -> Any:
        logprobs, _ = reference_logprobs(self.model, CANARY[:1], np.array(CANARY[1:], np.int32))
        canary = common_pb2.Canary(
            token_ids=np.array(CANARY, "<i4").tobytes(), logprobs=logprobs.astype("<f4").tobytes(), tolerance=1e-4
        )
        wanted = expected_checksums(self.model) if checksums else {}
        request = rollout_pb2.VerifyWeightsRequest(
            publication_id=publication,
            canary=canary,
            checksums=[common_pb2.TensorChecksum(name=name, value=value) for name, value in wanted.items()],
            deadline_s=10,
        )
        return await self.ask("VerifyWeights", request)

    async def bring(self, version: int, *, checksums: bool = True) -> Any:
        """Up to the proof."""
        snapshot = take(self.model)
        assert (await self.prepare(f"p{version}", version, snapshot)).accepted
        await self.transfer(f"p{version}", snapshot)
        return await self.prove(f"p{version}", checksums=checksums)

    async def publish(self, version: int, **other: Any) -> Snapshot:
        answer = await self.bring(version)
        assert answer.equal and answer.checksum and answer.layout == "sglang float32 1", answer.reason
        assert answer.unknown == 0
        await self.commit(f"p{version}")
        return take(self.model)


@asynccontextmanager
async def replica(server: Server, folder: Path, **rollout: Any) -> AsyncIterator[Replica]:
    listener = Listener()
    orchestrator = await serve({"wire.v1.OrchestratorService": listener.add_to}, "127.0.0.1", 0)
    table = {"hold_s": 0.3, "heartbeat_s": 0.2} | rollout
    settings = attached(server, folder, **table).model_copy(
        update={"orchestrator_address": f"127.0.0.1:{orchestrator.port}"}
    )
    broker, shutdown = MemoryBroker(), Shutdown()
    engine = await start_engine(settings)
    decoder = TextDecoder(settings.model.path)
    running = asyncio.create_task(run_replica(settings, engine, decoder, broker, shutdown, ReplicaHttpServer()))
    address = await asyncio.wait_for(listener.addresses.get(), 10)
    async with channel(address) as link:
        world = Replica(settings, broker, listener, RolloutServiceStub(link))
        world.trainer = Trainer()
        try:
            yield world
        finally:
            shutdown.event.set()
            await asyncio.wait_for(running, 20)
            await orchestrator.stop(0)


async def test_prompts_become_verified_rollouts_of_one_version_after_the_other(server: Server, tmp_path: Path) -> None:
    async with replica(server, tmp_path) as world:
        for version in range(2):
            world.model = make_model(seed=20 + version)
            digest = (await world.publish(version)).plan.weights_digest
            for index in range(4):
                await world.issue(4 * version + index, min_version=version)
            groups = (await world.rollouts(4 * version + 4, 30))[4 * version :]
            for _, group in groups:
                for rollout in group.rollouts:
                    (span,) = rollout.spans
                    assert span.version.version == version and span.weights_digest == digest
                    wanted, _ = reference_logprobs(world.model, group.prompt.token_ids.tolist(), rollout.token_ids)
                    np.testing.assert_allclose(rollout.logprobs, wanted, atol=1e-4)
                    # Special tokens are no text; a short rollout may have drawn nothing else.
                    assert bool(rollout.text) == any(token < SPECIAL for token in rollout.token_ids)
        await until_async(lambda: world.pending == 0)
        assert await world.state() == ("SERVING", 1)


async def test_a_server_that_falsely_confirms_an_update_is_quarantined(server: Server, tmp_path: Path) -> None:
    async with replica(server, tmp_path) as world:
        await world.publish(0)
        world.model = make_model(seed=30)
        for version, checksums in ((1, True), (2, False)):
            with server.fault("skip"):
                answer = await world.bring(version, checksums=checksums)
            assert not answer.equal and answer.reason.startswith("19 tensors" if checksums else "the canary")
            assert (await world.state())[0] == "QUARANTINED"
        await world.issue(0)
        await asyncio.sleep(0.5)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
        await world.publish(3)
        await world.rollouts(1, 20)


async def test_one_changed_number_is_found_every_time_and_running_groups_are_handed_back(
    server: Server, tmp_path: Path
) -> None:
    async with replica(server, tmp_path) as world:
        await world.publish(0)
        before = outcomes("handed_back")
        with server.slowed():
            await world.issue(0, max_tokens=200)
            await until_async(lambda: world.pending == 1)
            for version in range(1, 6):
                with server.fault("corrupt"):
                    answer = await world.bring(version)
                assert not answer.equal and "tensors are not the trainer's" in answer.reason
                assert (await world.state())[0] == "QUARANTINED"
            await until_async(lambda: outcomes("handed_back") > before)
        assert world.broker.streams[StreamName.ROLLOUTS].added == 0
        await world.publish(6)
        ((_, group),) = await world.rollouts(1, 20)
        assert {span.version.version for rollout in group.rollouts for span in rollout.spans} == {6}


async def test_a_quarantined_replica_comes_back_from_disk(server: Server, tmp_path: Path) -> None:
    async with replica(server, tmp_path) as world:
        await world.publish(0)
        world.model = make_model(seed=31)
        with server.fault("corrupt"):
            assert not (await world.bring(1)).equal
        folder = tmp_path / "weights" / "v1"
        save_weights(folder, world.model.named_parameters(), {})
        (folder / "config.json").write_text((server.model_path / "config.json").read_text())
        for fault in ("skip", ""):
            snapshot = take(world.model)
            assert (await world.prepare(f"disk-{fault}", 2, snapshot)).accepted
            with server.fault(fault):
                request = rollout_pb2.ReceiveWeightsRequest(
                    publication_id=f"disk-{fault}", disk_path=str(folder), deadline_s=10
                )
                await world.ask("ReceiveWeights", request)
            assert (await world.prove(f"disk-{fault}")).equal is (not fault)
        await world.commit("disk-")
        assert await world.state() == ("SERVING", 2)
        await world.issue(0)
        await world.rollouts(1, 20)
