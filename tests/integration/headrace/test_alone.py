"""One process kept alive, with real ones: which exit is the end, and when starting it again leads nowhere."""

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from headrace.run.joining.trainer_node import end_of_run
from headrace.supervisor.alone import OPERATOR_CODE, STOPPED_CODE, Alone
from headrace.supervisor.lock import RunLock, RunWatch
from headrace.supervisor.ports import pick_ports
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget
from headrace.supervisor.supervisor import RunOutcome
from headrace.supervisor.view import View

LIVES = """
import pathlib, sys, time
lives = pathlib.Path(sys.argv[1])
lives.write_text(lives.read_text() + "x" if lives.exists() else "x")
if len(lives.read_text()) == 1:
    sys.exit(int(sys.argv[2]))
time.sleep(float(sys.argv[3]))
"""


def run(
    folder: Path, *, then_s: float, lock: RunLock | None = None, code: int = STOPPED_CODE
) -> tuple[RunOutcome, list[str]]:
    """A process whose first life ends with `code`, and the second lasts `then_s`; the run ends after the first."""
    (folder / "logs").mkdir()
    argv = (sys.executable, "-c", LIVES, str(folder / "lives"), str(code), str(then_s))
    # Nobody listens there: it is never ready, as a machine that waits for the others.
    plan = ProcessPlan(name="trainer-node-1", argv=argv, env=dict(os.environ), http_port=pick_ports(1)[0])
    alone = Alone(folder, plan, budget=Budget(early_deaths=3), called_off=partial(end_of_run, RunWatch(folder), folder))
    told: list[str] = []

    def observe(view: View) -> None:
        nonlocal lock
        told[:] = view.notices
        if lock is not None and told and (folder / "lives").read_text() == "xx":
            lock.release()
            lock = None

    return asyncio.run(alone.run(observe)), told


def test_a_trainer_ended_by_a_signal_is_restarted_until_training_ends(tmp_path: Path) -> None:
    outcome, told = run(tmp_path, then_s=0.0)
    assert outcome == RunOutcome("finished")
    assert told == [f"trainer-node-1 exited with status {STOPPED_CODE}; it is started again (1)"]


def test_a_run_stopped_by_an_operator_is_unfinished_and_is_not_restarted(tmp_path: Path) -> None:
    outcome, told = run(tmp_path, then_s=600.0, code=OPERATOR_CODE)
    assert outcome == RunOutcome("stopped", "an operator stopped the run") and told == []


CRASHES = """
import json, sys
trace = "Traceback (most recent call last):\\n  File ...\\nAssertionError: Torch not compiled with CUDA enabled"
sys.stderr.write(json.dumps({"event": "crashed", "exception": trace}) + "\\n")
sys.exit(1)
"""


def test_a_process_that_never_starts_is_reported_in_one_line_with_its_log(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", CRASHES)
    plan = ProcessPlan(name="trainer", argv=argv, env=dict(os.environ), http_port=pick_ports(1)[0])
    outcome = asyncio.run(Alone(tmp_path, plan, budget=Budget(early_deaths=3)).run(lambda view: None))
    log = tmp_path / "logs" / "trainer.log"
    why = "crashed: AssertionError: Torch not compiled with CUDA enabled (3 times)"
    said = f"trainer exited with status 1 3 times before it was ready; its log is {log} and ends with: {why}"
    assert outcome == RunOutcome("failed", said) and log.is_file()
