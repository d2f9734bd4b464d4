"""What a run answers its trainer and replicas when lives of them come and go."""

import time
from pathlib import Path

import pytest

from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.run import Orchestrator
from headrace.services.orchestrator.service import OrchestratorServicer
from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_state import RunPhase
from headrace.wire.rundir.events import read_events
from headrace.wire.v1 import common_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.orchestrator.issuing.test_issuer import Office


def run_of(it: Office) -> Orchestrator:
    registry = Registry(1e9)
    publisher = PublicationCoordinator(it.state, registry, it.clients, it.events, PublicationTable())
    parts = (it.settings, it.store, it.state, registry, it.issuer, publisher, None, it.events, it.broker, it.clients)
    return Orchestrator(*parts)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def trainer(boot_id: str) -> pb.RegisterTrainerRequest:
    return pb.RegisterTrainerRequest(address="t:1", boot_id=boot_id)


async def test_the_trainer_learns_of_a_stop_from_the_answer_to_its_report(office: Office) -> None:
    run = run_of(office)
    await run.register_trainer(trainer("t1"))
    await run.report(pb.ReportProgressRequest(incarnation=1))
    run.state.operator_requests.stop(True)
    assert not run.state.trainer.knows_stop
    assert (await run.report(pb.ReportProgressRequest(incarnation=1))).stop
    await run.register_trainer(trainer("t1"))
    assert run.state.trainer.knows_stop  # It has only said again who it is.
    await run.register_trainer(trainer("t2"))
    assert not run.state.trainer.knows_stop


async def test_the_trainer_learns_the_gpu_count_once_all_replicas_have_reported(office: Office) -> None:
    run = run_of(office)
    await run.register_trainer(trainer("t1"))
    report = pb.ReportProgressRequest(incarnation=1)
    assert (await run.report(report)).rollout_gpus == 0
    for name, devices in (("0", ["a", "b"]), ("1", ["c", "d"]), ("2", ["c"])):
        routes = common_pb2.Routes(devices=devices)
        run.registry.register(pb.RegisterReplicaRequest(replica_id=name, boot_id=name, routes=routes), time.monotonic())
    assert (await run.report(report)).rollout_gpus == 4
    run.registry.register(pb.RegisterReplicaRequest(replica_id="cpu", boot_id="cpu"), time.monotonic())
    assert (await run.report(report)).rollout_gpus == 0


async def test_every_later_life_records_the_end_of_the_run_again(office: Office) -> None:
    run = run_of(office)
    await run.register_trainer(pb.RegisterTrainerRequest(address="t:1", boot_id="t1", version=5))
    await run.report(pb.ReportProgressRequest(incarnation=1, version=5, finished=True))
    office.build()
    again = run_of(office)
    assert again.state.phase is RunPhase.FINISHED
    again.repeat_end()
    told = [event for event in read_events(office.path) if event["event"] == "run_ended"]
    assert [one.get("again", False) for one in told] == [False, True]


async def test_replicas_learn_ended_groups_and_the_trainer_where_its_awaited_group_is(
    office: Office,
) -> None:
    run = run_of(office)
    servicer = OrchestratorServicer(run, run_id="test")
    await run.register_trainer(trainer("t1"))
    await office.issuer.issue()
    run.register_replica(pb.RegisterReplicaRequest(replica_id="rollout-1", boot_id="b", address="r:1"))

    async def beat() -> pb.HeartbeatResponse:
        state = pb.REPLICA_STATE_SERVING
        request = pb.HeartbeatRequest(replica_id="rollout-1", boot_id="b", state=state, groups=[0, 1, 2])
        return await servicer.Heartbeat(request, None)

    assert list((await beat()).ended) == []
    fates = [common_pb2.Fate(group_index=0, step=1), common_pb2.Fate(group_index=1, reason="stale")]
    answer = await run.report(pb.ReportProgressRequest(incarnation=1, version=1, fates=fates, awaited=[2, 3]))
    assert answer.awaited_at == "rollout-1 generates it"
    assert list((await beat()).ended) == [0, 1]
