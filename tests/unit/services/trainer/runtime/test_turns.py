"""The trainer's turn: all locks and the orchestrator's word, by a deadline that names what is missing."""

import os
from pathlib import Path

import pytest

from headrace.services.trainer.runtime.gpu_turns import TrainerTurns
from headrace.wire.errors import TransientError, WaitTimeoutError
from headrace.wire.host.gpu_lock import GpuLock


class Learner:
    def __init__(self, locks: list[GpuLock]) -> None:
        self.locks = locks
        self.calls: list[str] = []

    def park(self) -> None:
        assert all(lock.held for lock in self.locks), "a GPU was given away before it was left"
        self.calls.append("park")

    def unpark(self) -> None:
        assert all(lock.held for lock in self.locks), "a GPU was used before it was ours"
        self.calls.append("unpark")


class Orchestrator:
    """What the orchestrator says, one answer after the other; the last one stays."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.said: list[str] = []

    def ask(self) -> str:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def doing(self, what: str, left_s: float) -> None:
        self.said.append(what)


def locks_of(folder: Path, owner: str) -> list[GpuLock]:
    return [GpuLock(folder, number, owner) for number in range(2)]


def test_the_turn_begins_when_the_engines_sleep_and_all_gpus_are_free(tmp_path: Path) -> None:
    ours, theirs = locks_of(tmp_path, "trainer"), locks_of(tmp_path, "rollout-1")
    orchestrator = Orchestrator(TransientError("refused"), "evaluation of version 3", "")
    learner = Learner(ours)
    turns = TrainerTurns(ours, orchestrator.ask, orchestrator.doing, limit_s=30)
    theirs[1].try_take()
    looks: list[int] = []

    def given_up() -> bool:
        looks.append(1)
        if len(looks) == 4:
            theirs[1].give()
        return False

    assert turns.begin(learner, given_up)
    assert orchestrator.said == [
        "its turn on the GPU: the orchestrator is away (refused)",
        "its turn on the GPU: evaluation of version 3",
        f"its turn on the GPU: rollout-1 (pid {os.getpid()}) has GPU 1 of the run",
        f"its turn on the GPU: rollout-1 (pid {os.getpid()}) has GPU 1 of the run",
        "",
    ]
    assert turns.has and learner.calls == ["unpark"]
    turns.end(learner)
    assert not turns.has and learner.calls == ["unpark", "park"]
    assert all(lock.try_take() for lock in theirs)


def test_an_aborted_or_overlong_wait_for_a_turn_uses_no_gpu(tmp_path: Path) -> None:
    ours = locks_of(tmp_path, "trainer")
    orchestrator, learner = Orchestrator("rollout-0 to sleep"), Learner(ours)
    assert not TrainerTurns(ours, orchestrator.ask, orchestrator.doing, limit_s=30).begin(learner, lambda: True)
    with pytest.raises(WaitTimeoutError, match="the trainer's turn on its GPUs: rollout-0 to sleep"):
        TrainerTurns(ours, orchestrator.ask, orchestrator.doing, limit_s=0.2).begin(learner, lambda: False)
    assert learner.calls == []
