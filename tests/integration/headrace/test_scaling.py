"""Replicas come and go under a live supervisor, by its socket; and a process that is silent is started anew."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.operate.scale import scale
from headrace.supervisor.control import Control
from headrace.supervisor.lock import RunLock
from headrace.supervisor.ports import pick_ports
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget
from headrace.supervisor.supervisor import EndDeadlines, RunOutcome, Supervisor
from headrace.supervisor.view import View
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.peers.control import ask
from tests.integration.headrace.test_supervisor import QUICK, is_running, marks, orchestra, plan, say
from tests.waiting import until_async

Script = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A live supervisor of small services, and what a test sees of it."""

    def __init__(
        self, run_dir: Path, *options: str, patience: EndDeadlines = QUICK, budget: Budget | None = None
    ) -> None:
        self.run_dir = run_dir
        self.options = options
        self.dies = run_dir / "dies"
        """Number 2 exits at its start while there is this file."""
        self.control = Control(run_dir)
        self.view = View({}, {}, ())
        self.supervisor = Supervisor(
            run_dir,
            [*orchestra(run_dir), self.replica("rollout", 0)],
            broker=None,
            plan_replica=self.replica,
            control=self.control,
            patience=patience,
            budget=budget,
        )

    def replica(self, service: str, index: int) -> ProcessPlan:
        if index == 7:
            raise ConfigError("no port is left")
        options = ("--die-at-start", "2") if index == 5 else self.options
        if index == 2:
            options = ("--exit-when", str(self.dies), "--not-ready-while", str(self.dies))
        return plan(f"{service}-{index}", self.run_dir, *options, port=pick_ports(1)[0])

    def replicas(self) -> dict[str, str]:
        return {name: state for name, state in self.view.services.items() if name.startswith("rollout")}

    async def scale(self, count: object, service: str = "rollout") -> list[str]:
        return await ask(self.control.path, {"verb": "scale", "service": service, "count": count}, 60)

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        await until_async(condition, what, seconds, detail=lambda: self.view)

    async def until_ready(self, *names: str) -> None:
        await self.until(lambda: self.replicas() == dict.fromkeys(names, "ready"), f"{names} to be ready")

    def play(self, script: Script) -> RunOutcome:
        def observe(view: View) -> None:
            self.view = view

        async def both() -> RunOutcome:
            run = asyncio.create_task(self.supervisor.run(observe))
            try:
                await self.until_ready("rollout-0")
                await asyncio.wait_for(script(self), 150)
            finally:
                say(self.run_dir, "finished")
                await asyncio.wait_for(run, 150)
            return run.result()

        return asyncio.run(both())


def test_bad_requests_are_refused_with_a_reason_and_change_nothing(tmp_path: Path) -> None:
    async def script(stage: Stage) -> None:
        for count, service, reason in (
            (-1, "rollout", "must be 0 to 256, not -1"),
            ("many", "rollout", "must be a whole number, not 'many'"),
            (None, "rollout", "must be a whole number"),
            (2, "trainer", "the service 'trainer' cannot be scaled"),
        ):
            with pytest.raises(ConfigError, match=reason):
                await stage.scale(count, service)
        with pytest.raises(ConfigError, match="unknown verb 'stop'"):
            await ask(stage.control.path, {"verb": "stop"}, 5)
        for line in (b"no json\n", b"[1]\n", b"x" * 100_000 + b"\n"):
            answer = await raw(stage.control.path, line)
            assert answer["ok"] is False and answer["error"]
        assert stage.replicas() == {"rollout-0": "ready"}

    assert Stage(tmp_path).play(script).state == "finished"


def test_a_replica_that_keeps_dying_is_given_up_and_higher_numbers_stay_until_it_works_again(tmp_path: Path) -> None:
    async def script(stage: Stage) -> None:
        await stage.scale(4)
        await stage.until_ready("rollout-0", "rollout-1", "rollout-2", "rollout-3")
        stage.dies.touch()
        # The next number takes its place.
        others = ("rollout-0", "rollout-1", "rollout-3", "rollout-4")
        await stage.until_ready(*others)
        assert [one for one in stage.view.notices if one.startswith("rollout-2 is given up, the run goes on")]
        # Asked for again, it still fails.
        assert await stage.scale(4) == ["rollout-2 is started"]
        await stage.until(lambda: noticed(stage, "rollout-2 cannot be started, the run goes on"), "it to fail")
        await stage.until_ready(*others)
        stage.dies.unlink()
        assert await stage.scale(3) == ["rollout-2 is started"]
        await stage.until_ready("rollout-0", "rollout-1", "rollout-2")
        assert not noticed(stage, "rollout-1 drains") and not noticed(stage, "there will be no more")

    budget = Budget(early_deaths=2, early_deaths_later=4, longest_backoff_s=0.1)
    assert Stage(tmp_path, budget=budget).play(script).state == "finished"
    starts = [name for name, what, _ in marks(tmp_path) if what == "start"]
    assert starts.count("rollout-0") == starts.count("rollout-1") == starts.count("rollout-3") == 1


def noticed(stage: Stage, words: str) -> bool:
    return any(words in notice for notice in stage.view.notices)


async def raw(path: Path, line: bytes) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    answer: dict[str, Any] = json.loads(await asyncio.wait_for(reader.readline(), 10))
    writer.close()
    return answer


def test_a_replica_that_cannot_start_is_reported_and_the_run_continues(tmp_path: Path) -> None:
    async def script(stage: Stage) -> None:
        said = await stage.scale(9)
        assert said[-1] == "rollout-7 cannot be started, there will be no more than 7: no port is left"
        # And number 5 refuses its settings: 6 stays, and is all that there can be above it.
        await stage.until_ready(*(f"rollout-{index}" for index in (0, 1, 2, 3, 4, 6)))
        reasons = [one for one in stage.view.notices if one.startswith("rollout-5 cannot be started, the run goes on")]
        assert len(reasons) == 1 and "the setting is wrong" in reasons[0]
        await stage.until(
            lambda: noticed(stage, "rollout-7 cannot be started, there will be no more than 6"), "the end"
        )

    assert Stage(tmp_path).play(script).state == "finished"


def test_scale_finds_the_live_run_by_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"say which run.*none in runs/"):
        scale("rollout", "1", None)
    with pytest.raises(ConfigError, match="no run is alive in"):
        scale("rollout", "1", tmp_path)
    with pytest.raises(ConfigError, match="must be a whole number, not 'two'"):
        scale("rollout", "two", None)
    with pytest.raises(ConfigError, match="'trainer' cannot be scaled"):
        scale("trainer", "2", None)
    lock = RunLock(Path("runs/a"))
    try:
        with pytest.raises(ConfigError, match="is just starting"):
            scale("rollout", "1", None)
        lock.record(control=str(tmp_path / "nothing.sock"))
        with pytest.raises(TransientError, match="the supervisor does not answer"):
            scale("rollout", "1", None)
    finally:
        lock.release()


IMPATIENT = Budget(liveness_s=4.0, probe_s=0.2)
"""With the others, who are not frozen but share a busy machine."""


def test_a_frozen_process_is_killed_and_restarted(tmp_path: Path) -> None:
    async def script(stage: Stage) -> None:
        pid = json.loads((tmp_path / "run" / "rollout-0.json").read_text())["pid"]
        os.kill(pid, signal.SIGSTOP)
        await stage.until(lambda: not is_running(pid), "the frozen one to be killed")
        await stage.until(lambda: len(stage.view.notices) >= 2, "the notices")
        assert stage.view.notices[0] == "rollout-0 has not answered for 4 s: it is killed"
        await stage.until_ready("rollout-0")

    assert Stage(tmp_path, budget=IMPATIENT).play(script).state == "finished"
