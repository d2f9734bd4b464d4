"""The verb `train`, and the start of a stage."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from headrace.cli.common import AcceptChangedCode, Json, RunDir, reported_errors
from headrace.cli.dry_run import end_dry_run
from headrace.config.resolve import Resolved, resolve, settle
from headrace.config.run_dir import check_resumable
from headrace.config.unused import unused
from headrace.data.prepare import PreparedData
from headrace.data.prepare_examples import PreparedExamples
from headrace.doctor.wants import Wants
from headrace.inspect.output import FINISHED, Output
from headrace.run.execute import execute
from headrace.run.joining.trainer_node import join_placed
from headrace.run.launch import PreparedRun, prepare_run
from headrace.run.offline import PreparedStage, prepare_stage, run_stage
from headrace.run.preparation.fork import fork_run
from headrace.run.preparation.input_checks import check_around
from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.lock import RunLock
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited, launched_with
from headrace.wire.process.launcher import node_placement
from headrace.wire.rundir.layout import RunPaths

Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the run directory.")]
ForkOf = Annotated[
    Path | None, typer.Option("--fork", metavar="RUN_DIR", help="Begin with this run's history.", show_default=False)
]
FromStep = Annotated[
    int | None,
    typer.Option("--from-step", min=1, help="With --fork: up to this step. Default: the last.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, prepare the run directory, start nothing.")]


def train(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="RUN.toml", help="The config.", show_default=False)] = None,
    run_dir: RunDir = None,
    resume: Resume = False,
    fork: ForkOf = None,
    from_step: FromStep = None,
    dry_run: DryRun = False,
    accept_changed_code: AcceptChangedCode = False,
    json: Json = False,
) -> None:
    began = time.monotonic()
    with reported_errors(json=json, place=run_dir or Path("runs")) as output:
        place = node_placement(launched_with())
        if fork is not None:
            if place:
                fix = "fork on one machine with --dry-run, then start all with --resume"
                raise ConfigError(f"--fork, but {place.origin} is set: {fix}")
            if file or resume:
                raise ConfigError("--fork takes the config of the run that it names: leave out RUN.toml and --resume")
            run_dir, resume = forked(fork, from_step, run_dir, context.obj, output), True
        elif from_step is not None:
            raise ConfigError("--from-step is for --fork RUN_DIR")
        if file is None and not (resume and run_dir):
            raise ConfigError("give a RUN.toml (or --resume with --run-dir)")
        file = file or RunPaths(run_dir or Path()).run_toml
        resolved = resolve(file, arguments=context.obj, environment=inherited(), place=place)
        if place and place.node:
            folder = (run_dir or Path("runs") / resolved.config.run.id).resolve()
            # The checks of a dry run are machine 0's.
            raise typer.Exit(FINISHED if dry_run else join_placed(folder, place.node, resolved, inherited(), output))
        if accept_changed_code:
            _check_accepting(resolved, resume=resume)
        # A demo's run directory has the values of both of its stages.
        for line in [] if resume else unused(resolved):
            output.say(line)
        start(
            resolved,
            run_dir,
            output,
            resume=resume,
            dry_run=dry_run,
            began=began,
            accept_changed_code=accept_changed_code,
        )


def forked(source: Path, step: int | None, run_dir: Path | None, overrides: Sequence[str], output: Output) -> Path:
    """Makes the run directory of a fork, which is then resumed with these overrides. Raises ConfigError, DataError."""
    source = source.resolve()
    target = run_dir or source.with_name(f"{source.name}-fork-{step or 'last'}")
    resolved = resolve(RunPaths(source).run_toml, arguments=overrides, environment=inherited())
    if (stage := resolved.config.run.stage) != "rl":
        raise ConfigError(f"{source} is a run of the stage {stage}: --fork is for runs of the stage rl")
    resolved = settle(resolved, source, goes_on=True)
    check_resumable(source, resolved.config)
    # Its streams have the names of the other run's: a server that has those is refused.
    check_around(resolved, fresh=True)
    made = fork_run(source, target, step)
    output.say(f"forked {source} after step {made.step} into {target}")
    return target


def _check_accepting(resolved: Resolved, *, resume: bool) -> None:
    """Refuses `--accept-changed-code` where there is no code that may have changed. Raises ConfigError."""
    config = resolved.config
    if not resume or config.run.stage != "rl" or config.algorithm.path is None:
        raise ConfigError("--accept-changed-code is for --resume of a run with algorithm.path: leave it out")


def start(
    resolved: Resolved,
    run_dir: Path | None,
    output: Output,
    *,
    resume: bool,
    dry_run: bool,
    began: float,
    accept_changed_code: bool = False,
    lock: RunLock | None = None,
    forks: ForkServer | None = None,
) -> NoReturn:
    """Prepares and, unless it is a dry run, runs the stage; ends the command with the exit status.

    `lock`: the run directory's, if the caller holds it; `forks`: the fork server of an RL run, if it has begun.
    """
    folder = run_dir or Path("runs") / resolved.config.run.id
    prepare: Callable[..., PreparedRun | PreparedStage] = prepare_stage
    if resolved.config.run.stage == "rl":
        prepare = partial(prepare_run, accept_changed_code=accept_changed_code, forks=forks)
    environment = inherited()
    prepared = prepare(resolved, folder, resume=resume, environment=environment, dry_run=dry_run, lock=lock)
    output.say(in_words(prepared.data))
    if dry_run:
        config = prepared.config
        if config.run.stage == "rl" and (most := config.rollout.sampling.most_kept):
            output.say(f"a token is drawn from at most {most} ids, which take up to {4 * (most + 1):,} bytes")
        prepared.held.close()
        wants = Wants.of(dataclasses.replace(resolved, config=prepared.config), fresh=not resume)
        raise typer.Exit(end_dry_run(wants, prepared.run_dir, output, environment, facts=prepared.data))
    if isinstance(prepared, PreparedStage):
        raise typer.Exit(run_stage(prepared, output, began=began))
    raise typer.Exit(execute(prepared, output, began=began))


def in_words(data: PreparedData | PreparedExamples) -> str:
    """What was prepared, in one line."""
    if isinstance(data, PreparedData):
        said = f"{data.prompts} prompts, {data.eval_prompts} held out, the longest has {data.longest_prompt} tokens"
        if not data.longest_prompt:  # The prompt of a task that is played comes from its environment.
            said = f"{data.prompts} tasks, {data.eval_prompts} held out"
    else:
        said = f"{data.examples} examples, {data.eval_examples} held out, the longest has {data.longest} tokens"
    if data.dropped_overlong:
        said += f"; {data.dropped_overlong} overlong dropped"
    if data.dropped_duplicates:
        said += f"; {data.dropped_duplicates} left out of training because their prompt is held out"
    if data.unknown_share:
        said += f"; {data.unknown_share:.2%} of their tokens are unknown to the tokenizer"
    if data.begun_twice:
        said += f"; a second beginning-of-text token taken off {data.begun_twice} of them: leave it out of the texts"
    return said
