"""The verb `replay`: training alone, from the batches that a run has journaled."""

import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.config.resolve import Resolved, resolve, settle
from headrace.config.run_dir import check_resumable
from headrace.config.services import MachineLayout, ProcessSpec, settings_of
from headrace.config.tables import Ports
from headrace.config.toml import to_toml
from headrace.run.child import run_child
from headrace.run.joining.nodes import check_nodes, start_notes
from headrace.services.trainer.config.replay import ReplaySettings, ReplayTable
from headrace.wire.contracts.digests import same_weights
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir import atomic
from headrace.wire.rundir.events import read_events
from headrace.wire.rundir.jsonl import integer, number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import steps_of

_TIMEOUT_S = 24 * 3600.0
_TABLES = ("run", "model", "algorithm", "critic", "discriminator", "trainer")
_STEPS = re.compile(r"(\d*):(\d*)")


@dataclass(frozen=True, slots=True)
class Replayed:
    """The last line of `replay --json`."""

    first: int
    last: int
    """First and last step that were trained again."""
    as_in_run: int
    """How many of these steps ended in weights bit-equal to the run's."""
    differs_from: int | None
    """The first step whose weights are others; None if there is none."""
    not_compared: int
    """Steps whose weights have digests of unlike algorithms: the run was on a GPU and this is not, or the reverse."""
    loss: float | None
    """Loss of the last step."""
    weights_digest: str
    out: str


def replay(
    context: typer.Context,
    run_dir: Annotated[Path, typer.Argument(help="The run directory; it is only read.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="New folder for metrics, rollouts and log.", show_default=False)],
    checkpoint: Annotated[
        int | None,
        typer.Option(
            "--from-checkpoint",
            min=0,
            help="Checkpoint to begin with; 0 = the initial model. Default: the oldest.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        str, typer.Option("--steps", metavar="A:B", help="Steps to train; either end may be left out.")
    ] = ":",
    export: Annotated[bool, typer.Option("--export", help="Write the resulting model to OUT/export.")] = False,
    json: Json = False,
) -> None:
    with reported_errors(json=json, stopped="stopped") as output:
        table = ReplayTable(source=run_dir.resolve(), export=export, **_range(steps, checkpoint))
        found = run_replay(run_dir, out, table, context.obj or [], output.say)
        output.say(in_words(found))
        output.in_json(asdict(found))


def run_replay(
    run_dir: Path, out: Path, table: ReplayTable, overrides: list[str], say: Callable[[str], None]
) -> Replayed:
    """Runs the trainer to the replay's end. Raises ConfigError, ChildFailedError, WaitTimeoutError."""
    _check_overrides(overrides)
    resolved = settle(resolve(RunPaths(run_dir).run_toml, arguments=overrides), run_dir, goes_on=True)
    if (stage := resolved.config.run.stage) != "rl":
        raise ConfigError(f"{run_dir} is a run of the stage {stage}, which keeps no journal; see `headrace status`")
    check_resumable(run_dir, resolved.config)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} is not empty: choose a new folder")
    check_nodes(resolved)
    settings = _settings(resolved, out.resolve(), table)
    made = RunPaths(out)
    for folder in (made.logs, made.config):
        folder.mkdir(parents=True)
    values = resolved.config.model_dump(mode="json", serialize_as_any=True)
    atomic.write_text(made.run_toml, to_toml(values), durable=False)
    # For `headrace join`.
    text = settings.model_dump_json(indent=2, serialize_as_any=True)
    atomic.write_text(made.settings("trainer"), text + "\n", durable=False)
    log = made.log("trainer")
    for line in start_notes(out.resolve(), settings.trainer):
        say(line)
    try:
        words = ("the replay", "headrace.services.trainer", "--replay")
        run_child(*words, settings=settings, environment=inherited(), timeout_s=_TIMEOUT_S, log=log)
    except ConfigError:
        # Nothing was trained: the same folder may be given again.
        shutil.rmtree(out)
        raise
    return summarize_replay(out)


def summarize_replay(out: Path) -> Replayed:
    """What the folder of a replay says. Raises ConfigError if no step was trained."""
    rows = steps_of(out)
    done = {integer(event, "step"): event for event in read_events(out) if event.get("event") == "step_done"}
    if not done:
        raise ConfigError(f"no step was trained; see {RunPaths(out).log('trainer')}")
    digests = {step: (str(event["weights_digest"]), event["weights_digest_of_run"]) for step, event in done.items()}
    same = {step: same_weights(digest, str(of_run)) for step, (digest, of_run) in digests.items() if of_run}
    other = [step for step, one in same.items() if one is False]
    last = max(done)
    return Replayed(
        first=min(done),
        last=last,
        as_in_run=sum(one is True for one in same.values()),
        not_compared=sum(one is None for one in same.values()),
        differs_from=min(other, default=None),
        loss=number_of(rows.get(last, {}).get("loss")),
        weights_digest=digests[last][0],
        out=str(out),
    )


def in_words(found: Replayed) -> str:
    """For people."""
    count = found.last - found.first + 1
    weights = (
        f"the weights of {found.as_in_run} of {count} steps are bit-equal to the run's"
        if found.differs_from is None
        else f"from step {found.differs_from} on the weights are others than the run's"
    )
    if found.not_compared:
        weights += f"; those of {found.not_compared} cannot be compared, for their digests are of unlike algorithms"
    return f"steps {found.first} to {found.last} trained again: {weights}; {found.out}/metrics.jsonl"


def _settings(resolved: Resolved, out: Path, table: ReplayTable) -> ReplaySettings:
    """The settings of the run's trainer, except for the place; no service is contacted."""
    place = MachineLayout(out, "", {}, (), orchestrator="127.0.0.1:9")
    trainer = settings_of(resolved.config, ProcessSpec("trainer", "0", "trainer"), place, Ports())
    values: dict[str, object] = trainer.model_dump(mode="python", serialize_as_any=True)
    return ReplaySettings.model_validate(values | {"replay": table})


def _check_overrides(overrides: list[str]) -> None:
    """The rollouts are what they are: only what the trainer reads can be another."""
    for word in overrides:
        name = word.removeprefix("--").partition(".")[0]
        if word.startswith("--") and name not in _TABLES:
            raise ConfigError(f"{word}: a replay trains journaled rollouts; it can change {', '.join(_TABLES)} only")


def _range(text: str, checkpoint: int | None) -> dict[str, int]:
    match = _STEPS.fullmatch(text)
    if not match:
        raise ConfigError(f"--steps {text!r} is not A:B, such as 21:40, 21: or :40")
    first, last = (int(part) if part else 0 for part in match.groups())
    after = first - 1 if first else -1
    if checkpoint is not None:
        if first and after != checkpoint:
            raise ConfigError(f"--steps {text} begins with checkpoint {after}, not with --from-checkpoint {checkpoint}")
        after = checkpoint
    return {"after": after, "last": last}
