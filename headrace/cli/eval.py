"""The verb `eval`: a run's own evaluation, of its model or of another: all its services, for no step."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, RunDir, reported_errors
from headrace.cli.export import export_model
from headrace.config.resolve import Resolved, resolve
from headrace.inspect.screen import eval_line
from headrace.run.execute import execute
from headrace.run.launch import prepare_run
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.evals import evals_of
from headrace.wire.rundir.layout import RunPaths

_REPORT_S = 60.0
"""From an evaluation's deadline to its line."""


def evaluate(
    context: typer.Context,
    what: Annotated[Path, typer.Argument(metavar="RUN|MODEL", help="A run directory, or a model.", show_default=False)],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Prompts in place of the config's.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="RUN.toml to evaluate by. Default: the run's.", show_default=False)
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", min=1, help="Checkpoint of a run. Default: its export, else the newest.", show_default=False
        ),
    ] = None,
    run_dir: RunDir = None,
    json: Json = False,
) -> None:
    began = time.monotonic()
    with reported_errors(json=json) as output:
        name = f"eval-{what.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}"
        resolved = _resolved(what, file, config, step, context.obj)
        prepared = prepare_run(resolved, run_dir or Path("runs") / name, resume=False, environment=inherited())
        output.say(f"{prepared.data.eval_prompts} prompts are evaluated")
        status = execute(prepared, output, began=began)
        for row in evals_of(prepared.run_dir):
            if output.console.is_terminal:  # The live table has no line of it.
                output.say(eval_line(row))
            output.in_json({"run_dir": str(prepared.run_dir), **row})
        raise typer.Exit(status)


def _resolved(
    what: Path, file: Path | None, config: Path | None, step: int | None, arguments: Sequence[str]
) -> Resolved:
    """The config by which a model is evaluated. Raises ConfigError, ChildFailedError."""
    is_run = RunPaths(what).run_toml.is_file()
    base = config or (RunPaths(what).run_toml if is_run else None)
    if base is None and file is None:
        raise ConfigError(f"{what} is not a run directory: give the prompts, or --config with [data] and [reward]")
    rows = ["--data.path", str(file)] if base is None else []
    model = ["--model.path", str(_model_of(what, step) if is_run else what), "--model.hub=", "--model.revision="]
    # Of its own: a broker that many runs share keeps the streams of each id.
    given = [f"--run.id=eval-{time.time_ns()}", *rows, *arguments, *model, "--run.max-steps=0", "--trackers.use=[]"]
    resolved = resolve(base, arguments=given, environment=inherited())
    # The trainer waits for nothing else: as long as the evaluation may take.
    longest = max(one.deadline_s for one in resolved.config.eval) + _REPORT_S
    longest = max(longest, resolved.config.trainer.evaluation_timeout_s)
    resolved = resolved.changed("trainer", evaluation_timeout_s=longest)
    found = resolved.config
    if found.run.stage != "rl":
        raise ConfigError(f"run.stage = {found.run.stage!r} has no scorers: give --config with those of an RL run")
    if found.discriminator.every:
        raise ConfigError("a discriminator judges by what its own run has taught it: give --config with other scorers")
    if file is not None:
        one = found.eval[0].model_copy(update={"name": "", "path": str(file.resolve()), "split": "", "prompts": 0})
        return replace(resolved, config=found.model_copy(update={"eval": (one,)}))
    data = found.data
    if not (data.eval_path or data.eval_split or data.eval_size or all(one.has_own_rows for one in found.eval)):
        raise ConfigError("nothing is held out: give FILE, or [[eval]] with a path")
    return resolved


def _model_of(run_dir: Path, step: int | None) -> Path:
    """The run's export, or that of a checkpoint."""
    export = RunPaths(run_dir).export
    if step is None and export.is_dir():
        return export.resolve()
    return Path(export_model(run_dir, inherited(), step=step)["path"])
