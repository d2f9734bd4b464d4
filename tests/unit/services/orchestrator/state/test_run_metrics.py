"""Gauges of the run: who is there, who was lost, when steps were done."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_metrics import RunMetrics
from headrace.services.orchestrator.state.run_state import RunPhase, RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.v1 import orchestrator_pb2 as pb


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"headrace_orchestrator_{name}", labels) or 0.0


@pytest.fixture
def registry() -> Registry:
    return Registry(lease_s=5.0)


@pytest.fixture
def metrics(registry: Registry, tmp_path: Path) -> RunMetrics:
    settings = OrchestratorSettings.model_validate(
        {"run": {"id": "r", "max_staleness": 3, "max_steps": 7}, "model": {"path": "m"}, "run_dir": tmp_path}
    )
    state = RunState(Store(tmp_path / "state.sqlite"), max_steps=7)
    state.phase = RunPhase.RUNNING
    return RunMetrics(settings, state, registry)


def join(registry: Registry, name: str, now: float) -> None:
    registry.register(pb.RegisterReplicaRequest(replica_id=name, boot_id=f"{name}-boot"), now)
    beat(registry, name, now, pb.REPLICA_STATE_SERVING)


def beat(registry: Registry, name: str, now: float, state: "pb.ReplicaState") -> None:
    registry.heartbeat(pb.HeartbeatRequest(replica_id=name, boot_id=f"{name}-boot", state=state), now)


def test_a_lease_that_runs_out_is_a_loss_and_counts_once(metrics: RunMetrics, registry: Registry) -> None:
    join(registry, "a", 0.0)
    join(registry, "b", 0.0)
    metrics.look(1.0)
    before = value("replicas_lost_total")
    assert value("replicas", state="serving") == 2
    beat(registry, "b", 4.0, pb.REPLICA_STATE_SERVING)
    for now in (6.0, 7.0, 8.0):
        metrics.look(now)
    assert value("replicas", state="serving") == 1
    assert value("replicas_lost_total") == before + 1


def test_a_replica_that_leaves_is_not_counted_as_lost(metrics: RunMetrics, registry: Registry) -> None:
    join(registry, "a", 0.0)
    before = value("replicas_lost_total")
    beat(registry, "a", 1.0, pb.REPLICA_STATE_GONE)
    metrics.look(10.0)
    assert value("replicas_lost_total") == before
    assert value("replicas", state="serving") == 0
