"""The trainer dies by SIGKILL in each phase: replicas stay legal, and its next life publishes the version again."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import FencedError
from headrace.wire.rpc import call, channel
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from tests.chaos.publication.lives import Life, trainer_main
from tests.chaos.publication.stage import TIMES, Stage
from tests.chaos.publication.strike import PHASES, Moment, Watch

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]
SETTLED_S = 10.0 + TIMES.prepare_s + TIMES.transfer_s
"""By then an orphaned session is ended by the next one."""


class Trainers:
    """One after the other."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.lives: list[Life] = []

    async def born(self) -> tuple[Life, int]:
        folder = self._stage.replicas.folder
        life = Life(trainer_main, folder, self._stage.address, log=folder / "trainer.log")
        self.lives.append(life)
        return life, await life.ask("register", within_s=60)


@pytest_asyncio.fixture(loop_scope="module")
async def trainers(stage: Stage) -> AsyncIterator[Trainers]:
    born = Trainers(stage)
    yield born
    for life in born.lives:
        life.close()


@pytest.mark.long
@pytest.mark.parametrize("phase", PHASES)
async def test_replicas_serve_on_and_the_next_life_publishes_again(
    stage: Stage, trainers: Trainers, phase: str
) -> None:
    members = await stage.cast(2)
    life, incarnation = await trainers.born()
    old = PolicyVersion(incarnation=incarnation, version=stage.current.version)
    new = PolicyVersion(incarnation=incarnation, version=old.version + 1)
    await life.ask("publish", old.version)
    await stage.replicas.serving(old, members, 60)
    if phase == "transfer":
        await life.ask("die_in_transfer", new.version)
    else:
        Watch.moment = Moment(phase, new.version, life.process.kill)
    life.send("publish", new.version)
    await life.death()
    await settled(stage, members, old, new)
    heir, next_incarnation = await trainers.born()
    assert next_incarnation == incarnation + 1
    await heir.ask("publish", new.version)
    stage.current = PolicyVersion(incarnation=next_incarnation, version=new.version)
    await stage.replicas.serving(stage.current, members, 60)
    await fenced(stage, new)
    stage.traffic.check()
    assert stage.traffic.looked_at


async def settled(stage: Stage, members: list[str], *versions: PolicyVersion) -> None:
    """Each serves verified weights, or says that it has none; and the orchestrator is free again."""
    end = time.monotonic() + SETTLED_S
    for replica in members:
        while True:
            state, version = await stage.replicas.look(replica)
            if state == "pending_weights" or (state == "serving" and version in versions):
                break
            assert time.monotonic() < end, f"{replica} is {state} with {version}" + stage.replicas.logs()
            await asyncio.sleep(0.02)
    while stage.run.publisher.progress is not None:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def fenced(stage: Stage, late: PolicyVersion) -> None:
    """Neither the orchestrator nor a replica takes anything from a life that is over."""
    async with channel(stage.address) as link:
        request = pb.PublishRequest(incarnation=late.incarnation, version=late.version + 1)
        with pytest.raises(FencedError):
            await call(OrchestratorServiceStub(link).Publish, request, timeout_s=5, what="a zombie's publication")
    with pytest.raises(FencedError):
        await stage.replicas.prepare("rollout-0", late)
