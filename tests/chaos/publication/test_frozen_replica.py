"""A replica is frozen by SIGSTOP in each phase: the trainer goes on while it is, and thawed it catches up."""

import asyncio
import socket
import time

import pytest

from headrace.wire.v1 import common_pb2, message_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.chaos.publication.stage import Stage
from tests.chaos.publication.strike import PHASES, Moment, Watch
from tests.variants import keep

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]
SERVING_S = 60
GLOO = common_pb2.Routes(backends=["gloo"], ranks=1)


@pytest.mark.parametrize("phase", keep({"transfer"}, PHASES))
@pytest.mark.parametrize("members", [2, pytest.param(4, marks=pytest.mark.long)])
async def test_a_frozen_one_misses_its_phase_and_comes_back_over_the_disk_once_thawed(
    stage: Stage, phase: str, members: int
) -> None:
    victim, *others = reversed(await stage.cast(members))
    version = (await stage.publish()).version + 1
    middle = members > 2 and phase == "transfer"
    Watch.moment = Moment(phase, version, lambda: stage.replicas.freeze(victim), middle=middle, at=f"{victim}-")
    new = await stage.publish()
    try:
        # It still stands: no other than its deadline has ended the publication.
        assert Watch.moment.over
        await stage.replicas.serving(new, others, SERVING_S)
        assert stage.outcome(new, victim).reason.startswith(f"{phase}: ")
        assert {name for name, one in stage.run.outcomes[new].items() if one.committed} == set(others)
    finally:
        stage.replicas.thaw(victim)
    thawed = time.time()
    await stage.replicas.serving(new, [victim], SERVING_S)
    # Also the step after it finds everybody there.
    newer = await stage.publish()
    assert {name for name, one in stage.run.outcomes[newer].items() if one.committed} == {victim, *others}
    await stage.replicas.serving(newer, [victim, *others], SERVING_S)
    assert stage.replicas.routes(victim, new) == ["disk"]
    assert all(at >= thawed for (held, _), at in stage.replicas.committed()[victim].items() if held == new)
    stage.traffic.check()


@pytest.mark.long
async def test_one_that_stays_frozen_delays_one_publication_and_the_next_not_at_all(
    stage: Stage,
) -> None:
    victim, other = reversed(await stage.cast(2))
    stage.replicas.freeze(victim)
    members = []
    try:
        for _ in range(3):
            new = await stage.publish()
            members.append(stage.run.outcomes[new].keys())
            await stage.replicas.serving(new, [other], SERVING_S)
            await asyncio.sleep(0.5)
        assert members == [{victim, other}, {other}, {other}]
    finally:
        stage.replicas.thaw(victim)
    await stage.replicas.serving(new, [victim], SERVING_S)
    stage.traffic.check()
    assert stage.traffic.looked_at


@pytest.mark.long
@pytest.mark.parametrize("phase", ["verify", "commit"])
async def test_one_that_thaws_in_the_time_of_another_trainer_serves_nothing_of_the_former(
    stage: Stage, phase: str
) -> None:
    victim, other = reversed(await stage.cast(2))
    Watch.moment = Moment(phase, stage.current.version + 1, lambda: stage.replicas.freeze(victim))
    former = await stage.publish()
    try:
        await stage.trainer.register(former.version)
        new = await stage.publish()
        assert new.incarnation == former.incarnation + 1
        await stage.replicas.serving(new, [other], SERVING_S)
    finally:
        stage.replicas.thaw(victim)
    await stage.replicas.serving(new, [victim], SERVING_S)
    assert former not in [version for version, _ in stage.replicas.committed()[victim]]
    stage.traffic.check()


async def test_a_member_that_never_shows_up_delays_one_publication_and_the_next_not_at_all(stage: Stage) -> None:
    (replica,) = await stage.cast(1)
    # As if they had what is current: otherwise the joiners' loop may take them before the trainer's publication does.
    held = message_pb2.PolicyVersion(incarnation=stage.current.incarnation, version=stage.current.version)
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        closed.bind(("127.0.0.1", 0))
        for name, place in (("rollout-7", silent), ("rollout-8", closed)):
            address = f"127.0.0.1:{place.getsockname()[1]}"
            stage.run.registry.register(
                pb.RegisterReplicaRequest(replica_id=name, boot_id=name, address=address, routes=GLOO), time.monotonic()
            )
            beat = pb.HeartbeatRequest(replica_id=name, boot_id=name, state=pb.REPLICA_STATE_SERVING, version=held)
            assert stage.run.registry.heartbeat(beat, time.monotonic())
        new = await stage.publish()
        assert all(stage.outcome(new, name).reason.startswith("prepare: ") for name in ("rollout-7", "rollout-8"))
        await stage.replicas.serving(new, [replica], SERVING_S)
        # They are known for it: the next one does not wait for them.
        new = await stage.publish()
        assert stage.run.outcomes[new].keys() == {replica}
        await stage.replicas.serving(new, [replica], SERVING_S)
