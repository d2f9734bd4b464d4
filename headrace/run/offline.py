"""Stages that train on given examples: prepares the data, runs one trainer process to its end, reports the result."""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headrace.config import run_dir as folders
from headrace.config.resolve import Resolved
from headrace.config.schema import RunFile
from headrace.data.prepare_examples import PreparedExamples
from headrace.doctor.exposure import exposures, in_words
from headrace.doctor.placement import check_visible
from headrace.inspect.output import Output
from headrace.inspect.screen import Lines
from headrace.model.made_model import make_model_of
from headrace.run.execute import exit_status, say_end
from headrace.run.extras import check_extras
from headrace.run.joining.nodes import check_nodes, ready_s, start_notes
from headrace.run.preload import begin_fork_server
from headrace.run.preparation.data_files import prepare_files
from headrace.run.preparation.input_checks import check_data_files, check_model_folder
from headrace.run.preparation.locked_start import locked_start, settled_start
from headrace.run.receipts import end_receipt
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.settings import ProcessKeys
from headrace.supervisor.alone import STOPPED_CODE, Alone
from headrace.supervisor.lock import RunLock
from headrace.supervisor.once import child_environment, python
from headrace.supervisor.ports import check_free, pick_ports
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget
from headrace.supervisor.supervisor import RunOutcome
from headrace.wire.config.settings import ModelTable
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.evals import evals_of
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import steps_of

_LOCKED = ("run.id", "run.stage", "run.seed", "data", *folders.NUMBERS)


@dataclass(frozen=True, slots=True)
class PreparedStage:
    """A run directory that is ready to start."""

    config: RunFile
    run_dir: Path
    data: PreparedExamples
    plan: ProcessPlan
    held: ExitStack
    """Fork server and lock, until the end of the stage."""


@dataclass(frozen=True, slots=True)
class StageSummary:
    """The last line of `train --json` for these stages."""

    stage: str
    steps: int
    eval_before: Record | None
    """First evaluation of the held-out examples; None without any."""
    eval_after: Record | None
    loss: float | None
    """Loss of the last step."""
    seconds: float
    run_dir: str
    export: str | None
    """The folder of the trained model, once there is one."""
    receipt: str | None = None
    """Receipt of the run's files after its last step; None if none was taken."""


def prepare_stage(
    resolved: Resolved,
    run_dir: Path,
    *,
    resume: bool,
    environment: Mapping[str, str],
    dry_run: bool = False,
    lock: RunLock | None = None,
) -> PreparedStage:
    """Checks everything, prepares the examples and writes the trainer's config.

    `dry_run`: the machine is not checked here, but by `headrace.cli.dry_run`. `lock`: the run directory's, if the
    caller holds it. Raises ConfigError or DataError; a run directory that did not exist before is then removed again.
    """
    run_dir = run_dir.resolve()
    locked = (*_LOCKED, f"{resolved.config.run.stage}.batch_size")
    resolved = settled_start(resolved, run_dir, goes_on=resume, environment=environment, locked=locked)
    config = resolved.config
    env = child_environment(dict(environment), threads=config.run.threads, device=config.run.device)
    _check_input(resolved, scan=dry_run)
    if not dry_run:
        check_visible(resolved, environment)
        check_extras(resolved)
    with locked_start(run_dir, lock) as (_, held):
        make_model_of(resolved, goes_on=resume)
        forks = None if dry_run else begin_fork_server(config, env)
        if forks is not None:
            held.callback(forks.close)
        files = prepare_files(config, run_dir, env, keep=resume, file=RunPaths.examples.name, fork_server=forks)
        data = PreparedExamples(**json.loads(files))
        if not data.eval_examples:
            # An earlier dry run may have held some out: they are trained now.
            RunPaths(run_dir).eval_examples.unlink(missing_ok=True)
        plan = replace(_plan(resolved, run_dir, env, check=not dry_run), fork_server=forks)
    return PreparedStage(config, run_dir, data, plan, held)


def run_stage(prepared: PreparedStage, output: Output, *, began: float) -> int:
    """Runs the trainer to its end and reports how it ended; returns the exit status of the command."""
    screen = Lines(prepared.run_dir, output.say)
    table = prepared.config.supervisor
    budget = Budget(ready_s=ready_s(table, prepared.config.trainer), liveness_s=table.liveness_s)
    for line in start_notes(prepared.run_dir, prepared.config.trainer):
        output.say(line)
    if exposed := in_words(exposures(prepared.config, apart=False)):
        output.say(exposed)
    alone = Alone(prepared.run_dir, prepared.plan, budget=budget)
    try:
        outcome = asyncio.run(alone.run(screen.show))
    finally:
        screen.close()
        prepared.held.close()
    return _report(prepared, outcome, output, seconds=time.monotonic() - began)


def summarize_stage(run_dir: Path, stage: str, seconds: float) -> StageSummary:
    """Summarizes the run directory, earlier starts included."""
    steps, evals = steps_of(run_dir), evals_of(run_dir)
    looks = [{key: value for key, value in row.items() if key not in ("t", "step")} for row in evals]
    export = RunPaths(run_dir).export
    return StageSummary(
        stage=stage,
        steps=max(steps, default=0),
        eval_before=looks[0] if looks else None,
        eval_after=looks[-1] if looks else None,
        loss=number_of(steps[max(steps)].get("loss")) if steps else None,
        seconds=round(seconds, 3),
        run_dir=str(run_dir),
        export=str(export) if export.is_dir() else None,
    )


def _check_input(resolved: Resolved, *, scan: bool) -> None:
    config = resolved.config
    check_model_folder(resolved, scan=scan)
    if config.run.stage == "reward_model" and config.model.lora.rank:
        place = resolved.place("model", "lora", "rank")
        raise ConfigError(f"{place}: a reward model is trained whole, without adapters; set it to 0")
    check_nodes(resolved)
    check_data_files(resolved)


def _plan(resolved: Resolved, run_dir: Path, env: dict[str, str], *, check: bool) -> ProcessPlan:
    """Writes the trainer's settings and returns the plan to start it. Raises ConfigError if its port is taken."""
    config = resolved.config
    wanted = config.trainer.http_port
    check_free([(wanted, resolved.place("trainer", "http_port"))] if wanted and check else [])
    port = wanted or pick_ports(1)[0]
    values: dict[str, Any] = config.model_dump(mode="python", serialize_as_any=True)
    values["model"] = {key: value for key, value in values["model"].items() if key in ModelTable.model_fields}
    trainer = {key: value for key, value in values["trainer"].items() if key in ProcessKeys.model_fields}
    settings = StageSettings.model_validate(
        {name: values[name] for name in ("run", "model", "trackers", "sft", "reward_model", "dpo")}
        | {"trainer": trainer, "run_dir": run_dir, "http_port": port}
    )
    path = RunPaths(run_dir).settings("trainer")
    # Written again at each start; `headrace join` reads it on other machines.
    atomic.write_text(path, settings.model_dump_json(indent=2) + "\n", durable=False)
    words = ("--stage", config.run.stage, "--stopped-code", str(STOPPED_CODE))
    argv = python("headrace.services.trainer", *words, "--config", str(path))
    return ProcessPlan(name="trainer", argv=argv, env=env, http_port=port)


def _report(prepared: PreparedStage, outcome: RunOutcome, output: Output, *, seconds: float) -> int:
    run_dir, stage = prepared.run_dir, prepared.config.run.stage
    summary = summarize_stage(run_dir, stage, seconds)
    finished = f"finished: {summary.steps} steps of {stage} in {seconds:.1f} s\nmodel: {summary.export}"
    say_end(outcome, output, run_dir, summary.steps, finished)
    output.say(f"run directory: {run_dir}")
    receipt = end_receipt(run_dir, output.say, step=summary.steps)
    output.in_json(asdict(replace(summary, receipt=receipt)))
    return exit_status(outcome)
