"""The verb `export`: the model of a checkpoint as a folder that others load."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.common import Json, json_line, reported_errors
from headrace.run.child import run_child
from headrace.run.execute import Output
from headrace.services.trainer.config.export import ExportSettings, ExportTable
from headrace.wire.environment import inherited
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths

_TIMEOUT_S = 3600.0
_SHARED = ("run", "model", "run_dir")


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
    """Writes the model of a checkpoint as a Hugging Face folder; the run may be alive. Adapters are merged."""
    output = Output.choose(json=json)
    with reported_errors(output, stopped="stopped; nothing was written"):
        found = export_model(run_dir, inherited(), step=step, out=out)
        output.say(f"the model after step {found['step']}: {found['path']}")
        if output.json:
            output.result(json_line(found))


def export_model(
    run_dir: Path, environment: Mapping[str, str], *, step: int | None = None, out: Path | None = None
) -> dict[str, Any]:
    """`step`, `path`, `weights_sha256` of what was written. Raises ConfigError, ChildFailedError."""
    if out is not None and out.exists() and not _is_replaceable(out):
        raise ConfigError(f"{out} contains files that are not a model's: choose another folder with --out")
    table = ExportTable(step=-1 if step is None else step, target=out.resolve() if out else Path())
    settings = ExportSettings.model_validate(_shared(run_dir) | {"export": table})
    printed = run_child(
        "the export",
        "headrace.services.trainer",
        "--export",
        settings=settings,
        environment=environment,
        timeout_s=_TIMEOUT_S,
    )
    found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return found


def _shared(run_dir: Path) -> dict[str, object]:
    """The settings that the trainers of all stages have in common."""
    path = RunPaths(run_dir).settings("trainer")
    try:
        values: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{run_dir} is not a run directory (it has no config/trainer.json)") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return {key: values[key] for key in _SHARED if key in values} | {"run_dir": str(run_dir.resolve())}


def _is_replaceable(folder: Path) -> bool:
    """Empty, or a model that an export has written."""
    if not folder.is_dir():
        return False
    return not any(folder.iterdir()) or (folder / "config.json").is_file() or (folder / "adapter").is_dir()
