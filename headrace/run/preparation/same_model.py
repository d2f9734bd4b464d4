"""Whether a resumed run finds the model that it began with."""

from pathlib import Path

from headrace.config import run_dir as folders
from headrace.config.schema import RunFile
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import ModelFiles, check_same_model, read_model_files
from headrace.wire.telemetry.logs import get_logger

log = get_logger("headrace.model")


def model_to_record(config: RunFile, run_dir: Path, *, goes_on: bool) -> ModelFiles | None:
    """What a new run records of `model.path`; None for one that goes on with the model of its record.

    A run of a version without the record goes on with a notice, and has one from then on. Raises ConfigError for
    another model.
    """
    if goes_on:
        if check_same_model(config.model.path, run_dir, weights=needs_weights_again(config, run_dir)):
            return None
        effect = "whether the run began with this model is not known; it is recorded now"
        log.warning("model_was_not_recorded", path=str(config.model.path), effect=effect)
    return read_model_files(config.model.path)


def needs_weights_again(config: RunFile, run_dir: Path) -> bool:
    """Whether a resume reads those of `model.path`: under adapters, as a reference, or for want of a checkpoint."""
    offline = config.run.stage != "rl"
    reference = config.run.stage == "dpo" if offline else config.algorithm.needs_reference
    checkpoints = RunPaths(run_dir).checkpoints.glob("step-*")
    return bool(config.model.lora.rank) or reference or (folders.has_begun(run_dir) and not any(checkpoints))
