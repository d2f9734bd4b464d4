"""A replica is killed or frozen in a transfer: the others serve the new version, and it catches up when it is back."""

import socket
import time

import pytest

from headrace.wire.v1 import common_pb2, message_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.chaos.publication.stage import Stage
from tests.chaos.publication.strike import Moment

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]
SERVING_S = 60
GLOO = common_pb2.Routes(backends=["gloo"], ranks=1)


async def test_survivors_of_a_sigkill_serve_and_the_next_life_catches_up(stage: Stage) -> None:
    victim, *survivors = reversed(await stage.cast(2))
    moment = Moment(victim, lambda: stage.replicas.kill(victim))
    new = await stage.publish()
    assert moment.over
    await stage.replicas.serving(new, survivors, SERVING_S)
    assert stage.outcome(new, victim).reason.startswith("transfer: ")
    await stage.traffic.some(20)
    stage.traffic.flows = False
    stage.replicas.start(victim)
    newer = await stage.publish()
    await stage.replicas.serving(newer, [victim, *survivors], SERVING_S)
    stage.traffic.check()
    assert stage.traffic.looked_at


async def test_a_frozen_replica_misses_its_phase_and_reloads_from_disk_once_thawed(stage: Stage) -> None:
    victim, *others = reversed(await stage.cast(2))
    await stage.publish()
    moment = Moment(victim, lambda: stage.replicas.freeze(victim))
    new = await stage.publish()
    try:
        # It still stands: no other than its deadline has ended the publication.
        assert moment.over
        await stage.replicas.serving(new, others, SERVING_S)
        assert stage.outcome(new, victim).reason.startswith("transfer: ")
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


async def test_a_member_that_never_joins_delays_only_one_publication(stage: Stage) -> None:
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
