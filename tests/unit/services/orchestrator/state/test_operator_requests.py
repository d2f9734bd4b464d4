"""What operators ask for outlives the process, and is asked once however often it is asked."""

from pathlib import Path

import pytest

from headrace.services.orchestrator.state.operator import Operator
from headrace.services.orchestrator.state.operator_requests import OperatorRequests
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_state import RunPhase, RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import EventLog
from headrace.wire.v1 import orchestrator_pb2 as pb


def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state.sqlite")


def operator(tmp_path: Path) -> tuple[Operator, RunState]:
    state = RunState(store(tmp_path), max_steps=10)
    registry = Registry(1e9)
    registry.register(pb.RegisterReplicaRequest(replica_id="rollout-0", boot_id="b"), 0.0)
    return Operator(state, registry, EventLog(tmp_path, "orchestrator", "x"), tmp_path), state


def test_requests_outlive_the_process(tmp_path: Path) -> None:
    first = OperatorRequests(store(tmp_path))
    first.pause(True)
    first.stop(True)
    first.ask_checkpoint()
    first.drain("rollout-1", True, "b1")
    again = OperatorRequests(store(tmp_path))
    assert (again.paused, again.stopping, again.checkpoint) == (True, True, 1)
    assert again.drained == {"rollout-1"} and again.holds
    again.pause(False)
    again.stop(False)
    again.drain("rollout-1", False)
    assert not again.holds and not OperatorRequests(store(tmp_path)).drained


def test_a_checkpoint_is_asked_for_once_until_it_is_written(tmp_path: Path) -> None:
    operator_requests = OperatorRequests(store(tmp_path))
    operator_requests.ask_checkpoint()
    operator_requests.ask_checkpoint()
    assert operator_requests.checkpoint == 1
    assert operator_requests.checkpoint_done(1) and not operator_requests.checkpoint_done(1)
    assert operator_requests.checkpoint == 0
    operator_requests.ask_checkpoint()
    assert operator_requests.checkpoint == 2 and OperatorRequests(store(tmp_path)).checkpoint == 2


def test_a_drain_ends_with_the_replicas_life(tmp_path: Path) -> None:
    OperatorRequests(store(tmp_path)).drain("rollout-1", True, "b1")
    operator_requests = OperatorRequests(store(tmp_path))
    operator_requests.registered("rollout-1", "b1")
    operator_requests.registered("rollout-0", "b9")
    assert operator_requests.drained == {"rollout-1"}
    operator_requests.registered("rollout-1", "b2")
    assert not operator_requests.drained and not OperatorRequests(store(tmp_path)).drained


def trainer(boot_id: str, version: int = 0) -> pb.RegisterTrainerRequest:
    return pb.RegisterTrainerRequest(address="t:1", boot_id=boot_id, version=version)


@pytest.mark.parametrize("phase", [RunPhase.STOPPED, RunPhase.FINISHED])
async def test_how_a_run_ended_outlives_the_process_until_a_trainer_registers(tmp_path: Path, phase: RunPhase) -> None:
    _, state = operator(tmp_path)
    await state.register_trainer(trainer("t1", version=10))
    state.operator_requests.stop(True)
    state.stopped() if phase is RunPhase.STOPPED else state.finish()
    acts, again = operator(tmp_path)
    assert again.phase is phase and again.reason == state.reason and not again.operator_requests.stopping
    assert again.trainer.finished is (phase is RunPhase.FINISHED)
    with pytest.raises(ConfigError, match=f"the run is {phase}"):
        await acts.pause("cli")
    await again.register_trainer(trainer("t2", version=10))
    assert again.phase is RunPhase.RUNNING and again.reason == ""
    assert operator(tmp_path)[1].phase is RunPhase.STARTING


async def test_a_finished_run_with_more_steps_is_unfinished(tmp_path: Path) -> None:
    _, state = operator(tmp_path)
    await state.register_trainer(trainer("t1", version=10))
    state.finish()
    assert RunState(store(tmp_path), max_steps=11).phase is RunPhase.STARTING


def test_the_end_and_the_request_for_it_change_in_one_commit(tmp_path: Path) -> None:
    kept = store(tmp_path)
    state = RunState(kept, max_steps=10)
    for end in (state.stopped, state.finish):
        state.phase = RunPhase.RUNNING
        state.operator_requests.stop(True)
        said: list[str] = []
        kept._db._db.set_trace_callback(said.append)
        end()
        kept._db._db.set_trace_callback(None)
        assert said.count("COMMIT") == 1 and sum("operator_stopping" in one for one in said) == 1


async def test_a_new_start_does_not_stop_because_of_an_old_request(tmp_path: Path) -> None:
    _, state = operator(tmp_path)
    await state.register_trainer(trainer("t1"))
    state.operator_requests.stop(True)
    await state.register_trainer(trainer("t2"))
    assert state.operator_requests.stopping  # It crashed, and was started again: the request is for it, too.
    _, again = operator(tmp_path)
    await again.register_trainer(trainer("t2"))
    assert again.operator_requests.stopping  # Only this process was started again.
    await again.register_trainer(trainer("t3"))
    assert not again.operator_requests.stopping and not OperatorRequests(store(tmp_path)).stopping


async def test_a_resume_withdraws_a_stop_and_says_whether_it_came_in_time(tmp_path: Path) -> None:
    acts, state = operator(tmp_path)
    await state.register_trainer(trainer("t1"))
    await acts.stop("cli")
    assert "before the trainer received it" in await acts.resume("cli")
    assert not state.operator_requests.holds and not OperatorRequests(store(tmp_path)).stopping
    await acts.stop("cli")
    state.trainer.knows_stop = True
    assert "may have received it" in await acts.resume("cli")
    assert not state.operator_requests.holds
    await acts.stop("cli")
    again, state = operator(tmp_path)
    state.phase = RunPhase.RUNNING
    assert "may have received it" in await again.resume("cli")
    assert not state.operator_requests.holds
