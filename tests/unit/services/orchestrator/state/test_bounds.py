"""What callers tell the orchestrator is bounded: a caller out of bounds is refused and leaves nothing behind."""

from pathlib import Path

import pytest

from headrace.services.orchestrator.state import bounds
from headrace.services.orchestrator.state.environment_workers import EnvironmentWorkers
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.errors import ContractError
from headrace.wire.v1 import orchestrator_pb2 as pb


def replica(name: str = "rollout-0", **other: str) -> pb.RegisterReplicaRequest:
    return pb.RegisterReplicaRequest(replica_id=name, **{"boot_id": "ab12", "address": "10.0.0.1:7000", **other})


def trainer(incarnation: int, boot: str = "ab12") -> pb.RegisterTrainerRequest:
    return pb.RegisterTrainerRequest(boot_id=boot, address="trainer:7000", journaled_incarnation=incarnation)


@pytest.mark.parametrize("name", ["<b>x</b>", "a" * 129, "-x", "a b", "é", "../x"])
def test_ids_with_other_characters_or_excessive_length_are_rejected(name: str) -> None:
    registry, workers = Registry(8.0), EnvironmentWorkers(8.0)
    with pytest.raises(ContractError, match="bad_id"):
        registry.register(replica(name), 0.0)
    with pytest.raises(ContractError, match="bad_id"):
        registry.register(replica(boot_id=name), 0.0)
    with pytest.raises(ContractError, match="bad_id"):
        workers.report(pb.ReportEpisodesRequest(worker_id=name), 0.0)
    assert not registry.alive(0.0) and not workers.view(0.0)


@pytest.mark.parametrize("address", ["a" * 256, "host:1/path", "host 1", "unix:s", "unix:/a\n", "unix:/" + "a" * 108])
def test_an_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(ContractError, match="bad_address"):
        Registry(8.0).register(replica(address=address), 0.0)


def test_replica_ids_and_addresses_of_containers_are_accepted() -> None:
    registry = Registry(8.0)
    for name in ("rollout-0", "rollout-3f9c0a1b2c3d", "rollout-headrace-rollout-7d4b9c6f5-x2x8q", "rollout-a.b_c"):
        registry.register(replica(name, address="[fd00::1%eth0]:7000"), 0.0)
    registry.register(replica("rollout-1", address="unix:/home/me/my runs/a/run/rpc/rollout-1.sock"), 0.0)
    assert len(registry.alive(0.0)) == 5


def test_dead_replicas_make_room_and_live_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.services.orchestrator.state.registry.MOST_PEERS", 3)
    monkeypatch.setattr(bounds, "MOST_PEERS", 3)
    registry = Registry(8.0)
    for number in range(3):
        registry.register(replica(f"rollout-{number}"), float(number))
    with pytest.raises(ContractError, match="too_many"):
        registry.register(replica("rollout-3"), 3.0)
    registry.register(replica("rollout-1", boot_id="new"), 3.0)  # A known name is no further one.
    registry.register(replica("rollout-3"), 9.5)  # The lease of rollout-0 has ended.
    assert [one.replica_id for one in registry.alive(9.5)] == ["rollout-1", "rollout-2", "rollout-3"]


def test_workers_are_bounded_in_number_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_PEERS", 2)
    workers = EnvironmentWorkers(8.0)
    for name in ("environment-0", "environment-1", "environment-0"):
        workers.report(pb.ReportEpisodesRequest(worker_id=name), 0.0)
    with pytest.raises(ContractError, match="too_many"):
        workers.report(pb.ReportEpisodesRequest(worker_id="environment-2"), 1.0)
    long = pb.ReportEpisodesRequest(worker_id="environment-0", notes=["x" * 60_000] * 2)
    with pytest.raises(ContractError, match="too_long"):
        workers.report(long, 1.0)


async def test_a_trainer_with_the_journal_of_another_run_is_rejected(tmp_path: Path) -> None:
    state = RunState(Store(tmp_path / "state.sqlite"), max_steps=10)
    with pytest.raises(ContractError, match="bad_incarnation"):
        await state.register_trainer(trainer(2**32 - 2))
    assert await state.register_trainer(trainer(7)) == 8  # An orchestrator that has lost its state learns the number.
    with pytest.raises(ContractError, match="bad_incarnation"):
        await state.register_trainer(trainer(8 + bounds.MOST_LIVES + 1, boot="cd34"))
    assert await state.register_trainer(trainer(8, boot="cd34")) == 9
