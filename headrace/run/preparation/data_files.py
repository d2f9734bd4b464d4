"""Prepares the data of a run in a child process."""

import tempfile
from pathlib import Path

from headrace.config import run_dir as folders
from headrace.config.schema import RunFile
from headrace.config.toml import to_toml
from headrace.data.__main__ import BAD_INPUT
from headrace.data.progress import read_progress
from headrace.run.preparation.same_model import model_to_record
from headrace.run.receipts import record_config
from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.once import ChildFailedError, python, run_once
from headrace.wire.errors import DataError, WaitTimeoutError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import as_json

_WHAT = "preparing the data"
_PREPARE_TIMEOUT_S = 3600.0
QUIET = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
"""The second: that there is no torch, which `headrace.data` leaves out."""


def prepare_files(
    config: RunFile,
    run_dir: Path,
    env: dict[str, str],
    *,
    keep: bool,
    file: str,
    fork_server: ForkServer | None = None,
) -> str:
    """Prepares the data in a child, into a stage folder, and returns its summary as JSON.

    With `keep`, an existing `file` and its summary stay as they are. Raises DataError, and ConfigError for another
    model than that of the first start.
    """
    model = model_to_record(config, run_dir, goes_on=keep)
    found = RunPaths(run_dir).data_summary
    stage = folders.stage(run_dir)
    RunPaths(stage).config.mkdir()
    toml = RunPaths(stage).run_toml
    toml.write_text(to_toml(config.model_dump(mode="json", serialize_as_any=True)), encoding="utf-8")
    if keep and found.is_file() and (run_dir / file).is_file():
        text = found.read_text(encoding="utf-8")
    else:
        text = _run_preparation(toml, stage, env, fork_server)
    RunPaths(stage).data_summary.write_text(text, encoding="utf-8")
    if model is not None:
        RunPaths(stage).model_files.write_text(as_json(model), encoding="utf-8")
    if folders.has_begun(run_dir):
        record_config(run_dir, stage)
    folders.publish(run_dir, stage)
    return text


def _run_preparation(toml: Path, stage: Path, env: dict[str, str], forks: ForkServer | None) -> str:
    with tempfile.NamedTemporaryFile(prefix="headrace-") as progress:
        file = Path(progress.name)
        argv = python("headrace.data", "--config", str(toml), "--out", str(stage), "--progress", str(file))
        try:
            out = run_once(
                _WHAT,
                argv,
                env=env | QUIET,
                log=None,
                timeout_s=_PREPARE_TIMEOUT_S,
                fork_server=forks,
                progress=lambda: read_progress(file) or "its libraries are imported",
            )
        except ChildFailedError as error:
            raise DataError(error.message if error.status == BAD_INPUT else str(error)) from None
        except WaitTimeoutError as error:
            raise DataError(f"{error}, which stood at: {read_progress(file) or 'its start'}") from None
    return out.strip().splitlines()[-1]
