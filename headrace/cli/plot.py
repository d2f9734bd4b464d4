"""The verb `plot`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.config.run_dir import check_name
from headrace.inspect.plot import RunRows, choose_panels, draw
from headrace.inspect.runs.facts import facts_of
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.evals import evals_of
from headrace.wire.rundir.metrics import steps_of

_SUFFIXES = (".png", ".svg")


def plot(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Run directories.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Path without its suffix. Default: RUN_DIR/plots/curves, or curves for several."),
    ] = None,
    json: Json = False,
) -> None:
    with reported_errors(json=json) as output:
        files = plot_runs(run_dirs, out)
        output.say("\n".join(str(file) for file in files))
        output.in_json({"files": [str(file) for file in files], "runs": [str(run) for run in run_dirs]})


def plot_runs(run_dirs: Sequence[Path], out: Path | None) -> list[Path]:
    """The files written. Raises ConfigError for a folder that is not a run, has no steps yet, or cannot be written."""
    for path in run_dirs:
        # Its name becomes a title, which the libraries that draw must be able to encode.
        check_name(path)
    facts = [facts_of(run_dir) for run_dir in run_dirs]
    names = _names(run_dirs)
    rows = []
    for run_dir, name in zip(run_dirs, names, strict=True):
        steps = steps_of(run_dir)
        rows.append(RunRows(name=name, steps=[steps[step] for step in sorted(steps)], evals=evals_of(run_dir)))
    panels = choose_panels(rows)
    if not panels:
        raise ConfigError(f"there is nothing to draw yet: {run_dirs[0]} has done no step")
    base = out or (run_dirs[0] / "plots" / "curves" if len(run_dirs) == 1 else Path("curves"))
    # A suffix that was given is dropped; both files are written.
    base = base.with_suffix("") if base.suffix in _SUFFIXES else base
    files = [base.with_name(base.name + suffix) for suffix in _SUFFIXES]
    only = facts[0]
    title = f"{only.name}: {only.steps} steps, {only.state}" if len(facts) == 1 else f"{len(facts)} runs"
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        draw(panels, names, title, files)
    except OSError as error:
        raise ConfigError(f"cannot write {base}.*: {error.strerror}; choose another place with --out") from error
    return files


def _names(run_dirs: Sequence[Path]) -> list[str]:
    """Folder names; where two are the same, with the folder above."""
    paths = [run_dir.resolve() for run_dir in run_dirs]
    names = [path.name for path in paths]
    found = [path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}" for path in paths]
    return [f"{name} ({number + 1})" if found.count(name) > 1 else name for number, name in enumerate(found)]
