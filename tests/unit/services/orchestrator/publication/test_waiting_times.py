"""The status tells since when and until when each party waits, on the clock that people read."""

import time
from pathlib import Path

import pytest

from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.orchestrator.state import run_state
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.status import Status
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.orchestrator.issuing.test_issuer import Office, office


def registered(registry: Registry, name: str, now: float, waiting_for: str = "") -> None:
    registry.register(pb.RegisterReplicaRequest(replica_id=name, boot_id=name, address="a:1"), now)
    beat(registry, name, now, waiting_for)


def beat(registry: Registry, name: str, now: float, waiting_for: str) -> None:
    state = pb.REPLICA_STATE_SERVING
    request = pb.HeartbeatRequest(replica_id=name, boot_id=name, state=state, waiting_for=waiting_for)
    assert registry.heartbeat(request, now)


def status_of(it: Office, registry: Registry) -> Status:
    publisher = PublicationCoordinator(it.state, registry, it.clients, it.events, PublicationTable())
    return Status(it.store, it.state, registry, it.issuer, publisher, None)


async def test_a_trainer_wait_spans_from_its_first_report_to_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(run_state.time, "monotonic", lambda: clock[0])
    async with office(tmp_path) as it:
        for now, words, left in ((100.0, "a batch", 30.0), (105.0, "a batch", 25.0), (107.0, "a batch", 0.0)):
            clock[0] = now
            request = pb.ReportProgressRequest(incarnation=1, waiting_for=words, waiting_left_s=left)
            await it.state.report(request)
            assert it.state.trainer.waiting_since == 100.0
            assert it.state.trainer.waiting_until == (130.0 if left else None)
        clock[0] = 109.0
        await it.state.report(pb.ReportProgressRequest(incarnation=1, waiting_for="the publication before to end"))
        assert it.state.trainer.waiting_since == 109.0


async def test_the_status_gives_waiting_times_in_unix_seconds_and_none_for_busy_replicas(tmp_path: Path) -> None:
    registry, began = Registry(lease_s=60), time.time()
    registered(registry, "idle", time.monotonic() - 5.0, "prompts")
    registered(registry, "busy", time.monotonic())
    async with office(tmp_path) as it:
        await it.state.report(pb.ReportProgressRequest(incarnation=1, waiting_for="a batch", waiting_left_s=60.0))
        view = status_of(it, registry).view()
    busy, idle = view.replicas
    assert idle.waiting_since == pytest.approx(began - 5.0, abs=2) and busy.waiting_since is None
    trainer = view.trainer
    assert trainer.waiting_since == pytest.approx(began, abs=5)
    assert trainer.waiting_until - trainer.waiting_since == pytest.approx(60.0, abs=0.3)
    assert view.waiting_since is None and view.evaluating_until is None
