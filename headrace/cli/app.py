"""The verbs of `headrace`. Settings are given as dotted options (`--trainer.learning-rate 1e-6`) on any of them."""

import dataclasses
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from headrace.cli.common import AcceptChangedCode, Json, RunDir, json_line, reported_errors
from headrace.cli.completion import DottedCommand, completion_text
from headrace.cli.dry_run import end_dry_run
from headrace.cli.verbs import add_verbs
from headrace.config.resolve import Resolved, resolve, settle
from headrace.config.run_dir import check_resumable
from headrace.config.unused import unused
from headrace.data.prepare import PreparedData
from headrace.data.prepare_examples import PreparedExamples
from headrace.demo.demo import prepared_demo
from headrace.doctor.wants import Wants
from headrace.inspect.history import check_run, checked_receipt
from headrace.model.tiny_models import make_text_model
from headrace.reference.algorithms import as_text, describe
from headrace.run.execute import FAILED, FINISHED, Output, execute
from headrace.run.launch import PreparedRun, prepare_run
from headrace.run.offline import PreparedStage, prepare_stage, run_stage
from headrace.run.preparation.fork import fork_run
from headrace.run.preparation.input_checks import check_around
from headrace.supervisor.lock import RunLock
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.layout import RunPaths

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Improves a language model with reinforcement learning, as a set of services.",
    epilog="Any setting can be given as an option: --run.max-steps 50, --trainer.learning-rate 1e-6.",
)


def _print_version(asked: bool) -> None:
    if asked:
        Output.choose(json=False).result(f"headrace {version('headrace')}")
        raise typer.Exit


_Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")]


@app.callback()
def _options(_version: _Version = False) -> None:
    """What stands before the verb."""


Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the run directory.")]
ForkOf = Annotated[
    Path | None, typer.Option("--fork", metavar="RUN_DIR", help="Begin with this run's history.", show_default=False)
]
FromStep = Annotated[
    int | None,
    typer.Option("--from-step", min=1, help="With --fork: up to this step. Default: the last.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, prepare the run directory, start nothing.")]


def run(arguments: Sequence[str]) -> int:
    """Runs a command line; returns its exit status. The user's mistakes are reported, not raised."""
    signal.signal(signal.SIGTERM, _interrupt)
    words, overrides = split_overrides(arguments)
    if text := completion_text(words):
        Output.choose(json=False).result(text)
        return FINISHED
    command = typer.main.get_command(app)
    try:
        status = command.main(args=words, prog_name="headrace", obj=overrides, standalone_mode=True)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else FAILED
    return status if isinstance(status, int) else FINISHED


def _interrupt(_number: int, _frame: object) -> None:
    """SIGTERM while nothing has been started yet is like Ctrl-C: clean up and go."""
    raise KeyboardInterrupt


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Dotted options and their values apart from the rest, wherever they stand."""
    words: list[str] = []
    overrides: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        if not (name.startswith("--") and "." in name):
            words.append(word)
            continue
        overrides.append(word)
        if not equals and rest and not rest[0].startswith("--"):
            overrides.append(rest.pop(0))
    return words, overrides


@app.command(cls=DottedCommand)
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
    """Trains as configured in RUN.toml; `--resume` and `--fork` need only a run directory."""
    began = time.monotonic()
    with reported_errors(json=json, place=run_dir or Path("runs")) as output:
        if fork is not None:
            if file or resume:
                raise ConfigError("--fork takes the config of the run that it names: leave out RUN.toml and --resume")
            run_dir, resume = forked(fork, from_step, run_dir, context.obj, output), True
        elif from_step is not None:
            raise ConfigError("--from-step is for --fork RUN_DIR")
        if file is None and not (resume and run_dir):
            raise ConfigError("give a RUN.toml (or --resume with --run-dir)")
        resolved = resolve(file or RunPaths(run_dir or Path()).run_toml, arguments=context.obj, environment=inherited())
        if accept_changed_code:
            _check_accepting(resolved, resume=resume)
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
) -> NoReturn:
    """Prepares and, unless it is a dry run, runs the stage; ends the command with the exit status.

    `lock`: the run directory's, if the caller holds it.
    """
    folder = run_dir or Path("runs") / resolved.config.run.id
    prepare: Callable[..., PreparedRun | PreparedStage] = prepare_stage
    if resolved.config.run.stage == "rl":
        prepare = partial(prepare_run, accept_changed_code=accept_changed_code)
    environment = inherited()
    # A run directory's config has every key, given or not.
    for line in [] if resume else unused(resolved):
        output.say(line)
    prepared = prepare(resolved, folder, resume=resume, environment=environment, dry_run=dry_run, lock=lock)
    output.say(in_words(prepared.data))
    if dry_run:
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


@app.command()
def check(
    run_dir: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    receipt: Annotated[
        str, typer.Option("--receipt", metavar="HEX", help="A receipt of this run: proves that its files are as then.")
    ] = "",
    json: Json = False,
) -> None:
    """Proves from journal and events that nothing was lost, trained twice, or trained under unverified weights."""
    with reported_errors(json=json) as output:
        verdict = check_run(run_dir, checked_receipt(receipt))
        for problem in verdict.problems:
            output.say(f"problem: {problem}")
        for note in verdict.notes:
            output.say(note)
        output.say(verdict.in_words())
        if output.json:
            output.result(verdict.as_json())
        raise typer.Exit(FINISHED if verdict.ok else FAILED)


@app.command()
def algorithms(
    name: Annotated[str, typer.Argument(help="Only this one, with all its keys.", show_default=False)] = "",
    json: Json = False,
) -> None:
    """Lists the algorithms: parts, defaults, source, and when to use them."""
    with reported_errors(json=json) as output:
        found = describe(name)
        if json:
            output.result(json_line([one.as_json() for one in found]))
        else:
            output.say(as_text(found, whole=bool(name)))


@app.command(cls=DottedCommand)
def demo(
    context: typer.Context,
    run_dir: RunDir = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Teaches a tiny model to add, on two CPU cores in about three minutes: nothing to download, nothing to set up."""
    began = time.monotonic()
    with reported_errors(json=json, place=run_dir or Path("runs")) as output, ExitStack() as held:
        lock = None
        if resume:
            if run_dir is None:
                raise ConfigError("--resume needs --run-dir, the folder of the demo to continue")
            resolved = resolve(RunPaths(run_dir).run_toml, arguments=context.obj, environment=inherited())
        else:
            run_dir = run_dir or Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
            check = partial(check_around, fresh=True)
            resolved, lock = held.enter_context(
                prepared_demo(run_dir, context.obj, inherited(), output.say, check=check)
            )
        start(resolved, run_dir, output, resume=resume, dry_run=False, began=began, lock=lock)


add_verbs(app)


@app.command("make-model")
def make_model(
    tokenizer_from: Annotated[Path, typer.Option("--tokenizer-from", help="Data or text to learn the BPE from.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    columns: Annotated[str, typer.Option("--columns", help="Its columns, separated by commas.")] = "",
    vocab_size: Annotated[int, typer.Option("--vocab-size", min=300)] = 1024,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    json: Json = False,
) -> None:
    """Creates a tiny Qwen3 model with random weights and a BPE tokenizer, to try a config before the real model."""
    with reported_errors(json=json, place=out) as output:
        names = tuple(filter(None, (name.strip() for name in columns.split(","))))
        make_text_model(tokenizer_from, names, out, vocab_size=vocab_size, seed=seed)
        output.say(f"model: {out}")
        output.in_json({"model": str(out)})
