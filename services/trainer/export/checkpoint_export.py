"""Exports the model of a checkpoint as a Hugging Face folder; the run may be live, and is not touched."""

from dataclasses import dataclass
from pathlib import Path

import torch

from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.backends.state import check_weights, set_weights
from headrace.services.trainer.config.export import ExportSettings
from headrace.services.trainer.durability.checkpoint import Checkpoint, CheckpointStore, load_checkpoint
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.export.written import check_target
from headrace.services.trainer.model.loading import load_policy, load_value_model
from headrace.services.trainer.model.model import TrainedModule
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import check_same_model


@dataclass(frozen=True, slots=True)
class Exported:
    """A model folder that was written."""

    step: int
    path: str
    weights_sha256: str


def export_checkpoint(settings: ExportSettings) -> Exported:
    """Writes the folder, whole or not at all.

    Checkpoints hold whole tensors: one process can export them, however many ranks have trained. Raises ConfigError if
    there is no such checkpoint or it is another model's, or if `model.path` is not as at the run's first start,
    DataError for a damaged one.
    """
    checkpoint = _find(settings)
    check_same_model(settings.model.path, settings.run_dir, weights=bool(settings.model.lora.rank))
    module = _load_module(settings)
    named = dict(module.named_weights())
    try:
        check_weights(named, checkpoint.weights)
    except ValueError as error:
        raise ConfigError(f"{checkpoint.path} is of another model than {settings.model.path}: {error}") from error
    set_weights(named, checkpoint.weights)
    backend = SingleDevice(module, options=BackendOptions(name="single"))
    dtype, table = getattr(torch, settings.model.dtype), settings.export
    target = table.target if table.target.parts else RunPaths(settings.run_dir).exports / checkpoint.path.name
    # Once more: loading takes minutes, and what lies there now is removed.
    check_target(target, run_dir=settings.run_dir, sources=(settings.model.path,))
    digest = export_model(backend, settings.model.path, target, dtype=dtype, run_dir=settings.run_dir)
    return Exported(checkpoint.state.step, str(target), digest)


def _find(settings: ExportSettings) -> Checkpoint:
    table = settings.export
    folder = RunPaths(settings.run_dir).checkpoints
    store = CheckpointStore(folder, keep=1)
    published = dict(store.published())
    if table.step < 0:
        newest = store.newest()
        if newest is None:
            raise ConfigError(f"{folder} holds no whole checkpoint yet")
        return newest
    path: Path | None = published.get(table.step)
    if path is None:
        found = ", ".join(map(str, published)) or "none"
        raise ConfigError(f"there is no checkpoint of step {table.step} (there are: {found})")
    return load_checkpoint(path)


def _load_module(settings: ExportSettings) -> TrainedModule:
    """Loads the model on the CPU, beside a live run, but rounds 4-bit weights on the run's own device."""
    lora, path = settings.model.lora, settings.model.path
    dtype = getattr(torch, settings.model.dtype)
    torch.set_num_threads(settings.run.threads)
    if settings.run.stage == "reward_model":
        return load_value_model(path, device="cpu", forward_dtype=dtype)
    device = "cpu" if lora.quantize == "none" else settings.run.device
    return load_policy(path, device=device, forward_dtype=dtype, lora=lora)
