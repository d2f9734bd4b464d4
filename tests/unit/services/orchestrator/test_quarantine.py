"""A replica that serves what was never published must disown it; one that serves what was, or used to be, must not."""

from pathlib import Path

import pytest

from headrace.services.orchestrator.publication.quarantine import MOST_UNPROVEN
from headrace.services.orchestrator.run import Orchestrator
from headrace.services.orchestrator.service import OrchestratorServicer
from headrace.wire.rundir.events import read_events
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.message_pb2 import PolicyVersion
from tests.unit.services.orchestrator.issuing.test_issuer import Office
from tests.unit.services.orchestrator.test_run import run_of, trainer

SERVING = pb.REPLICA_STATE_SERVING


@pytest.fixture
async def run(tmp_path: Path) -> Orchestrator:
    """Version 4 of incarnation 1 is the newest that was published."""
    run = run_of(Office(tmp_path))
    await run.register_trainer(trainer("t1"))
    run.state.remember_publication(pb.PublishRequest(incarnation=1, version=4))
    run.register_replica(pb.RegisterReplicaRequest(replica_id="r", boot_id="b", address="r:1"))
    return run


async def beat(run: Orchestrator, incarnation: int, version: int, *, boot: str = "b") -> pb.HeartbeatResponse:
    servicer = OrchestratorServicer(run, run_id="test")
    told = PolicyVersion(incarnation=incarnation, version=version)
    return await servicer.Heartbeat(
        pb.HeartbeatRequest(replica_id="r", boot_id=boot, state=SERVING, version=told), None
    )


async def report(run: Orchestrator, unproven: int) -> None:
    rows = {"r": unproven} if unproven else {}
    await run.report(pb.ReportProgressRequest(incarnation=1, version=4, unproven=rows))


def quarantined(run: Orchestrator) -> list[str]:
    return [str(one["reason"]) for one in read_events(run._settings.run_dir) if one["event"] == "replica_quarantined"]


async def test_a_version_that_was_never_published_is_disowned_and_recorded_once(run: Orchestrator) -> None:
    for incarnation, version in ((0, 0), (1, 3), (1, 4)):
        assert not (await beat(run, incarnation, version)).HasField("disown")
    for incarnation, version in ((1, 5), (1, 5), (7, 1)):
        answer = await beat(run, incarnation, version)
        assert (answer.disown.incarnation, answer.disown.version) == (incarnation, version)
        assert answer.disown_reason == f"it serves {incarnation}.{version}, the newest that was published is 1.4"
        assert answer.incarnation == 1
    assert [why.partition(",")[0] for why in quarantined(run)] == ["it serves 1.5", "it serves 7.1"]
    (replica,) = run.registry.alive(0.0)
    assert replica.state == pb.REPLICA_STATE_QUARANTINED and replica.version.version == 0
    assert not run.registry.places(0.0).replicas[0].takes


async def test_weights_are_not_judged_before_a_publication_or_for_an_unknown_boot(tmp_path: Path) -> None:
    run = run_of(Office(tmp_path))
    await run.register_trainer(trainer("t1"))
    assert not (await beat(run, 9, 9)).HasField("disown")
    run.register_replica(pb.RegisterReplicaRequest(replica_id="r", boot_id="b", address="r:1"))
    assert not (await beat(run, 9, 9)).HasField("disown")
    run.state.remember_publication(pb.PublishRequest(incarnation=1, version=0))
    assert not (await beat(run, 9, 9, boot="older")).HasField("disown")
    assert (await beat(run, 9, 9)).HasField("disown")


async def test_each_new_streak_of_groups_under_unknown_weights_disowns_them_again(run: Orchestrator) -> None:
    await report(run, MOST_UNPROVEN - 1)
    assert not (await beat(run, 1, 4)).HasField("disown")
    await report(run, MOST_UNPROVEN)
    assert f"its last {MOST_UNPROVEN} groups" in (await beat(run, 1, 4)).disown_reason
    # It has got the weights anew; groups that it had sampled before still arrive.
    await report(run, MOST_UNPROVEN + 2)
    assert not (await beat(run, 1, 4)).HasField("disown")
    await report(run, 2 * MOST_UNPROVEN)
    assert (await beat(run, 1, 4)).HasField("disown")
    await report(run, 0)  # A group of it was trained.
    assert not (await beat(run, 1, 4)).HasField("disown")
    await report(run, MOST_UNPROVEN)
    assert (await beat(run, 1, 4)).HasField("disown")
    assert len(quarantined(run)) == 3
