"""The supervisor with real processes: restarts, order of the end, and nothing left running."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.supervisor.broker import embedded
from headrace.supervisor.ports import pick_ports
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget
from headrace.supervisor.supervisor import EndDeadlines, RunOutcome, Supervisor
from headrace.supervisor.view import View
from headrace.wire.errors import DiskError
from tests.status import status_json
from tests.waiting import until

SCRIPT = Path(__file__).with_name("small_service.py")
QUICK = EndDeadlines(poll_s=0.05, settle_s=2.0, finish_s=2.0, drain_s=3.0, grace_s=1.0)
CALM = replace(QUICK, drain_s=60.0, grace_s=60.0)
"""Where all end when they are asked to: nobody is killed because the machine is busy."""


def plan(name: str, run_dir: Path, *options: str, port: int = 0) -> ProcessPlan:
    argv = (sys.executable, str(SCRIPT), "--name", name, "--marks", str(run_dir / "marks"), "--port", str(port))
    return ProcessPlan(name=name, argv=(*argv, *options), env=dict(os.environ), http_port=port)


def orchestra(run_dir: Path, *trainer_options: str, **more: tuple[str, ...]) -> list[ProcessPlan]:
    """orchestrator, trainer and whatever else is named."""
    say(run_dir, "running")
    ports = pick_ports(2 + len(more))
    plans = [
        plan("orchestrator", run_dir, "--status", str(run_dir / "status"), port=ports[0]),
        plan("trainer", run_dir, *trainer_options, port=ports[1]),
    ]
    return plans + [
        plan(name, run_dir, *options, port=port) for (name, options), port in zip(more.items(), ports[2:], strict=True)
    ]


def say(run_dir: Path, state: str, **more: str | int) -> None:
    (run_dir / "status.new").write_text(json.dumps(status_json(state=state, **more)))
    (run_dir / "status.new").rename(run_dir / "status")


def marks(run_dir: Path) -> list[tuple[str, str, int]]:
    lines = (run_dir / "marks").read_text().splitlines() if (run_dir / "marks").exists() else []
    return [(name, what, int(pid)) for name, what, pid in (line.split() for line in lines)]


def started_pids(run_dir: Path) -> list[int]:
    return [pid for _, what, pid in marks(run_dir) if what == "start"]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(supervisor: Supervisor, act: Callable[[View], None] = lambda _: None) -> RunOutcome:
    return asyncio.run(asyncio.wait_for(supervisor.run(act), 150))


def test_a_finished_run_ends_with_all_processes_down_and_pid_files_written(tmp_path: Path) -> None:
    broker = embedded(tmp_path, dict(os.environ))
    plans = orchestra(tmp_path, "--exit-when", str(tmp_path / "done"), reward=())
    ports = {one.name: one.http_port for one in plans}

    def act(view: View) -> None:
        if all(state == "ready" for state in view.services.values()) and len(view.services) == 4:
            say(tmp_path, "finished")
            (tmp_path / "done").touch()

    outcome = run(Supervisor(tmp_path, plans, broker=broker, patience=QUICK), act)
    assert outcome.state == "finished"
    for name in ("broker", "orchestrator", "reward", "trainer"):
        written = json.loads((tmp_path / "run" / f"{name}.json").read_text())
        assert not is_running(written["pid"])
        assert written["http_port"] == ports.get(name, 0)
    assert not broker.socket.exists()


def test_a_killed_child_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    plans = orchestra(tmp_path, reward=())
    killed: list[int] = []

    def act(view: View) -> None:
        rewards = [pid for name, what, pid in marks(tmp_path) if (name, what) == ("reward", "start")]
        if view.services.get("reward") == "ready" and len(killed) < 2 and rewards[-1] not in killed:
            killed.append(rewards[-1])
            os.kill(rewards[-1], signal.SIGKILL)
        if len(rewards) == 3 and view.services["reward"] == "ready":
            say(tmp_path, "finished")

    outcome = run(Supervisor(tmp_path, plans, broker=None, patience=QUICK), act)
    assert outcome.state == "finished"
    assert len([1 for name, what, _ in marks(tmp_path) if (name, what) == ("reward", "start")]) == 3


def test_a_child_that_never_becomes_ready_fails_the_run_and_names_its_log(tmp_path: Path) -> None:
    plans = orchestra(tmp_path, reward=("--die-at-start", "1"))
    outcome = run(Supervisor(tmp_path, plans, broker=None, budget=Budget(early_deaths=3), patience=QUICK))
    assert outcome.state == "failed"
    assert "reward exited with status 1 3 times before it was ready" in outcome.reason
    assert "reward.log" in outcome.reason and "refused: the setting is wrong" in outcome.reason
    assert not any(map(is_running, started_pids(tmp_path)))


def test_a_child_that_refuses_its_settings_is_not_started_again(tmp_path: Path) -> None:
    plans = orchestra(tmp_path, reward=("--die-at-start", "2"))
    outcome = run(Supervisor(tmp_path, plans, broker=None, patience=QUICK))
    assert outcome.state == "failed"
    assert "reward refused its settings or data" in outcome.reason and "the setting is wrong" in outcome.reason
    assert len([1 for name, what, _ in marks(tmp_path) if (name, what) == ("reward", "start")]) == 1


def test_a_failed_run_carries_the_orchestrators_reason(tmp_path: Path) -> None:
    plans = orchestra(tmp_path)
    outcome = run(
        Supervisor(tmp_path, plans, broker=None, patience=QUICK), lambda _: say(tmp_path, "failed", reason="poison")
    )
    assert (outcome.state, outcome.reason) == ("failed", "poison")


def test_one_signal_stops_the_trainer_first_and_kills_leftover_processes(tmp_path: Path) -> None:
    grandchild = tmp_path / "grandchild"
    plans = orchestra(tmp_path, reward=("--grandchild", str(grandchild)))
    sent: list[bool] = []

    def act(view: View) -> None:
        if set(view.services.values()) == {"ready"} and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    outcome = run(Supervisor(tmp_path, plans, broker=None, patience=CALM), act)
    assert outcome.state == "stopped"
    ended = [name for name, what, _ in marks(tmp_path) if what == "end"]
    assert ended[0] == "trainer" and set(ended) == {"trainer", "orchestrator", "reward"}
    until(lambda: not is_running(int(grandchild.read_text())), "the grandchild to be gone")


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    plans = orchestra(tmp_path, "--ignore-term")
    # An hour for the trainer, which heeds no SIGTERM: `run` gives up long before.
    slow = EndDeadlines(poll_s=0.05, drain_s=3600.0)
    sent: list[bool] = []

    def act(view: View) -> None:
        if set(view.services.values()) == {"ready"} and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)
            asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)

    assert run(Supervisor(tmp_path, plans, broker=None, patience=slow), act).state == "stopped"
    assert not any(map(is_running, started_pids(tmp_path)))
    assert ("trainer", "end") not in [(name, what) for name, what, _ in marks(tmp_path)]


DRIVER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.integration.headrace.test_supervisor import orchestra, QUICK
from headrace.supervisor.broker import embedded
from headrace.supervisor.supervisor import Supervisor
import os
run_dir = Path(sys.argv[1])
plans = orchestra(run_dir, reward=())
asyncio.run(Supervisor(run_dir, plans, broker=embedded(run_dir, dict(os.environ)), patience=QUICK).run(lambda _: None))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="death with the parent is Linux's")
def test_nothing_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), str(root)], cwd=root)
    try:
        until(lambda: len(started_pids(tmp_path)) == 3, "all three to start")
        pids = [*started_pids(tmp_path), json.loads((tmp_path / "run" / "broker.json").read_text())["pid"]]
        assert all(map(is_running, pids))
    finally:
        process.kill()
        process.wait(10)
    until(lambda: not any(map(is_running, pids)), "all children to die")


def test_a_death_on_a_full_disk_ends_the_run_and_is_not_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = DiskError("/run: the disk is full")
    monkeypatch.setattr("headrace.supervisor.process_monitor.probe", lambda _folder: full)
    plans = orchestra(tmp_path, "--die-at-start", "1")
    outcome = run(Supervisor(tmp_path, plans, broker=None, patience=QUICK))
    assert outcome == RunOutcome("failed", f"trainer could not write {full}", disk_refused=True)
    assert len([one for one in marks(tmp_path) if one[:2] == ("trainer", "start")]) == 1
