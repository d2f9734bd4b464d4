"""What operators ask for outlives the process, and is asked once however often it is asked."""

from pathlib import Path

import pytest

from services.orchestrator.operator import Operator
from services.orchestrator.registry import Registry
from services.orchestrator.run_state import RunPhase, RunState
from services.orchestrator.store import Store
from services.orchestrator.wishes import Wishes
from wire.errors import ConfigError
from wire.events import EventLog, read_events
from wire.v1 import orchestrator_pb2 as pb


def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state.sqlite")


def operator(tmp_path: Path) -> tuple[Operator, RunState]:
    state = RunState(store(tmp_path), max_steps=10)
    registry = Registry(1e9)
    registry.register(pb.RegisterReplicaRequest(replica_id="rollout-0", boot_id="b"), 0.0)
    return Operator(state, registry, EventLog(tmp_path, "orchestrator", "x"), tmp_path), state


def test_wishes_outlive_the_process(tmp_path: Path) -> None:
    first = Wishes(store(tmp_path))
    first.pause(True)
    first.stop(True)
    first.ask_checkpoint()
    first.drain("rollout-1", True)
    again = Wishes(store(tmp_path))
    assert (again.paused, again.stopping, again.checkpoint) == (True, True, 1)
    assert again.drained == {"rollout-1"} and again.holds
    again.pause(False)
    again.stop(False)
    again.drain("rollout-1", False)
    assert not again.holds and not Wishes(store(tmp_path)).drained


def test_a_checkpoint_is_asked_for_once_until_it_is_written(tmp_path: Path) -> None:
    wishes = Wishes(store(tmp_path))
    wishes.ask_checkpoint()
    wishes.ask_checkpoint()
    assert wishes.checkpoint == 1
    assert wishes.checkpoint_done(1) and not wishes.checkpoint_done(1)
    assert wishes.checkpoint == 0
    wishes.ask_checkpoint()
    assert wishes.checkpoint == 2 and Wishes(store(tmp_path)).checkpoint == 2


async def test_acts_are_told_and_logged(tmp_path: Path) -> None:
    acts, state = operator(tmp_path)
    state.phase, state.version = RunPhase.RUNNING, 3
    assert "paused" in await acts.pause("cli")
    await acts.checkpoint("cli")
    await acts.drain("rollout-0", True, "dashboard")
    assert acts.view() == {"paused": True, "stopping": False, "checkpoint_asked": True, "draining": ["rollout-0"]}
    await acts.stop("cli")
    assert state.wishes.stopping
    state.stopped()
    assert state.phase is RunPhase.STOPPED and not state.wishes.stopping
    logged = [event for event in read_events(tmp_path) if event["event"] == "operator_action"]
    assert [(one["action"], one["who"], one["version"]) for one in logged] == [
        ("pause", "cli", 3),
        ("checkpoint", "cli", 3),
        ("drain rollout-0", "dashboard", 3),
        ("stop", "cli", 3),
    ]


async def test_what_cannot_be_done_is_refused_with_the_way_out(tmp_path: Path) -> None:
    acts, state = operator(tmp_path)
    state.phase = RunPhase.RUNNING
    with pytest.raises(ConfigError, match="the first step is not done"):
        await acts.checkpoint("cli")
    with pytest.raises(ConfigError, match="no replica 'rollout-9'; there are rollout-0"):
        await acts.drain("rollout-9", True, "cli")
    with pytest.raises(ConfigError, match="docker compose up -d --no-recreate --scale rollout=4"):
        await acts.scale("rollout", 4, "cli")
    state.phase = RunPhase.FINISHED
    with pytest.raises(ConfigError, match="the run is finished"):
        await acts.pause("cli")
    assert not state.wishes.paused
