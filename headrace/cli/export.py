"""The verb `export`: the model of a checkpoint as a folder that others load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.common import Json, reported_errors
from headrace.config.resolve import kept_settings
from headrace.run.child import run_child
from headrace.services.trainer.config.export import ExportSettings, ExportTable
from headrace.services.trainer.export.written import check_target
from headrace.wire.process.environment import inherited

_TIMEOUT_S = 3600.0
_SHARED = ("run", "model", "run_dir")
"""The settings that the trainers of all stages have in common."""
_MODELS = ("model", "critic", "discriminator")
"""Tables with the folder of a model."""


def export(
    run_dir: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    step: Annotated[
        int | None,
        typer.Option("--step", min=1, help="Step of the checkpoint; default: the newest.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write. Default: RUN_DIR/exports/STEP.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    with reported_errors(json=json, stopped="stopped; nothing was written", place=out or run_dir) as output:
        found = export_model(run_dir, inherited(), step=step, out=out)
        output.say(f"the model after step {found['step']}: {found['path']}")
        output.in_json(found)


def export_model(
    run_dir: Path, environment: Mapping[str, str], *, step: int | None = None, out: Path | None = None
) -> dict[str, Any]:
    """`step`, `path`, `weights_sha256` of what was written. Raises ConfigError, ChildFailedError."""
    values = kept_settings(run_dir, "trainer")
    if out is not None:
        check_target(out, run_dir=run_dir, sources=_sources(values))
    table = ExportTable(step=-1 if step is None else step, target=out.resolve() if out else Path())
    shared = {key: values[key] for key in _SHARED if key in values} | {"run_dir": str(run_dir.resolve())}
    settings = ExportSettings.model_validate(shared | {"export": table})
    words = ("the export", "headrace.services.trainer", "--export")
    return run_child(*words, settings=settings, environment=environment, timeout_s=_TIMEOUT_S)


def _sources(values: Mapping[str, object]) -> tuple[Path, ...]:
    """The folders of models that the run reads."""
    tables = [values.get(name) for name in _MODELS]
    paths = [table.get("path") for table in tables if isinstance(table, dict)]
    return tuple(Path(path) for path in paths if path and path != ".")
