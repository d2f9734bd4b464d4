"""Runs a prepared run to its end and reports it: shared by `train` and `demo`."""

import asyncio
import shlex
import time
from dataclasses import replace
from pathlib import Path

from headrace.config.schema import RunFile
from headrace.doctor.exposure import exposures, in_words
from headrace.inspect.output import DISK_REFUSED, FAILED, FINISHED, STOPPED, LastingOutput, Output
from headrace.inspect.results import left_out_in_words, summarize
from headrace.inspect.screen import Lines, LiveTable, Screen
from headrace.run.joining.nodes import ready_s, start_notes
from headrace.run.launch import PreparedRun
from headrace.run.receipts import end_receipt
from headrace.supervisor.control import Control
from headrace.supervisor.process_monitor import Budget
from headrace.supervisor.supervisor import RunOutcome, Supervisor
from headrace.wire.process.environment import announced, inherited
from headrace.wire.process.threads import start_threads
from headrace.wire.rundir.evals import evals_of, progress_in_words
from headrace.wire.rundir.layout import RunPaths


def execute(prepared: PreparedRun, output: Output, *, began: float) -> int:
    """Runs all processes to the end of the run and returns the exit status. `began`: monotonic start of the command."""
    output = LastingOutput.choose(json=output.json)
    port = next(plan.http_port for plan in prepared.plans if plan.name == "orchestrator")
    for line in start_notes(prepared.run_dir, prepared.config.trainer):
        output.say(line)
    if exposed := in_words(exposures(prepared.config, apart=bool(announced(inherited())))):
        output.say(exposed)
    screen = begin_screen(prepared.run_dir, port, output)
    try:
        outcome = asyncio.run(_supervise(prepared, screen))
    finally:
        screen.close()
        prepared.held.close()
    return report(prepared.run_dir, outcome, output, seconds=time.monotonic() - began)


def begin_screen(run_dir: Path, port: int, output: Output) -> Screen:
    """Opens the screen and prints the dashboard's address: above the table, or once the orchestrator answers.

    Without the token: what this command prints may be kept.
    """
    link = f"`headrace dashboard {shlex.quote(str(run_dir))}` prints the link with its token"
    address = f"dashboard: http://127.0.0.1:{port}/ as long as the run lives ({link})"
    if not output.console.is_terminal:
        return Lines(run_dir, output.say, started=address)
    output.say(address)
    return LiveTable(run_dir, output.console)


async def _supervise(prepared: PreparedRun, screen: Screen) -> RunOutcome:
    start_threads()
    control, table = Control(prepared.run_dir), prepared.config.supervisor
    prepared.lock.record(control=str(control.path))
    supervisor = Supervisor(
        prepared.run_dir,
        prepared.plans,
        broker=prepared.broker,
        plan_replica=prepared.planner.replica,
        control=control,
        budget=Budget(ready_s=longest_start_s(prepared.config), liveness_s=table.liveness_s),
    )
    return await supervisor.run(screen.show)


def longest_start_s(config: RunFile) -> float:
    """Seconds that any process may take to become ready: an SGLang server on a GPU loads, and then compiles."""
    seconds, rollout = ready_s(config.supervisor, config.trainer), config.rollout
    on_gpu = rollout.sglang.device == "cuda" or (rollout.sglang.device == "auto" and config.run.device != "cpu")
    return seconds + (rollout.sglang.start_timeout_s if rollout.engine == "sglang" and on_gpu else 0.0)


def report(run_dir: Path, outcome: RunOutcome, output: Output, *, seconds: float) -> int:
    """Reports how the run ended and where its files are; returns the exit status."""
    summary = summarize(run_dir, seconds)
    if len(evals := evals_of(run_dir)) > 1 and (said := progress_in_words(evals)):
        output.say(f"held-out {said}")
    finished = f"finished: {summary.steps} steps, {summary.rollouts} rollouts in {seconds:.1f} s"
    say_end(outcome, output, run_dir, summary.steps, finished)
    if outcome.state == "failed" and ".log" not in outcome.reason and not outcome.disk_refused:
        output.say(f"look at {RunPaths(run_dir).log('trainer')} and {RunPaths(run_dir).log('orchestrator')}")
    if left_out := left_out_in_words(summary.events_left_out):
        output.say(left_out)
    output.say(f"run directory: {run_dir}")
    receipt = end_receipt(run_dir, output.say, step=summary.steps)
    if RunPaths(run_dir).export.is_dir() and outcome.state == "finished":
        output.say(f"model: {RunPaths(run_dir).export}")
    if output.json:
        output.result(replace(summary, receipt=receipt).as_json())
    return exit_status(outcome)


def say_end(outcome: RunOutcome, output: Output, run_dir: Path, steps: int, finished: str) -> None:
    """Says how a stage ended: `finished`, or after how many steps and what to do."""
    ends = {"finished": finished, "stopped": f"stopped after {steps} steps; to continue: {resuming(run_dir)}"}
    output.say(ends.get(outcome.state, f"failed after {steps} steps: {outcome.reason}"))


def resuming(run_dir: Path) -> str:
    """The command that resumes a run, of any stage and the demo too."""
    return f"headrace train --resume --run-dir {shlex.quote(str(run_dir))}"


def exit_status(outcome: RunOutcome) -> int:
    """The exit status of a command that ran a stage to this outcome."""
    failed = DISK_REFUSED if outcome.disk_refused else FAILED
    return {"finished": FINISHED, "stopped": STOPPED}.get(outcome.state, failed)
