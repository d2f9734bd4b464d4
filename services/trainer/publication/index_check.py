"""Checks before the first step that published names match the checkpoint's: an engine drops a name it does not know."""

from collections.abc import Collection
from pathlib import Path

from headrace.services.trainer.model.layout import Layout, model_layout, some
from headrace.services.trainer.model.lora import adapted_modules
from headrace.services.trainer.model.model import TrainedModule
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.model_files import indexed_weights, read_header


def check_published(module: TrainedModule, folder: Path) -> None:
    """Raises ConfigError unless what is published is what the checkpoint in `folder` holds.

    Every published name must be in the checkpoint. Any other tensor of the checkpoint must be tied to a published one,
    or not be read by the model's class: an engine would go on with its initial value. Adapters must be of modules that
    have the same name in both.
    """
    if module.lora is None:
        _check_names(module.layout, checkpoint_names(folder), folder)
    else:
        _check_adapters(model_layout(module.model), adapted_modules(module.model), folder)


def checkpoint_names(folder: Path) -> frozenset[str]:
    """The tensors of a model folder, by its index or else by the header of its file."""
    return frozenset(weight_files(folder))


def weight_files(folder: Path) -> dict[str, Path]:
    """Tensor -> the file of a model folder that holds it; raises ConfigError."""
    single = folder / "model.safetensors"
    try:
        return indexed_weights(folder) or dict.fromkeys(read_header(single)[0], single)
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path {folder}: the names of its tensors cannot be read: {error}") from error


def _check_names(layout: Layout, index: Collection[str], folder: Path) -> None:
    unknown = sorted(layout.names.difference(index))
    if unknown:
        raise ConfigError(
            f"model.path {folder}: its checkpoint has no {some(unknown)}, which the trainer would publish: "
            "an engine that was started with this folder could not load them; save the model again with save_pretrained"
        )
    left = set(index) - layout.names - layout.tied
    missed = sorted(name for name in left if not any(pattern.search(name) for pattern in layout.unread))
    if missed:
        raise ConfigError(
            f"model.path {folder}: its checkpoint has {some(missed)}, which the trainer would never publish: an engine "
            "would keep them unchanged; save the model again with save_pretrained, which leaves them out"
        )


def _check_adapters(layout: Layout, modules: Collection[str], folder: Path) -> None:
    plain = {group.sources[0] for group in layout.groups if group.sources == tuple(name for name, _ in group.published)}
    odd = sorted(name for name in modules if f"{name}.weight" not in plain)
    if odd:
        raise ConfigError(
            f"model.lora.targets: {some(odd)} of {folder} are named or shaped otherwise in its checkpoint, and an "
            "engine could not place their adapters; choose other targets, or train without (model.lora.rank = 0)"
        )
