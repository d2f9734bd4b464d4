"""Weights as safetensors in a folder that is there whole or not at all, with a manifest that proves its bytes."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from headrace.wire.errors import ContractError
from headrace.wire.rundir import atomic

_WEIGHTS = "model.safetensors"
_MANIFEST = "manifest.json"
_SCHEMA = 1


def save_weights(
    folder: Path,
    named: Iterable[tuple[str, Tensor]],
    metadata: Mapping[str, str],
    *,
    weights_file: str = _WEIGHTS,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Writes `named` aside, fsyncs files and folders, and renames: `folder` appears whole. An older one is replaced.

    `files` are put beside the weights: with a model's config and tokenizer any engine loads the folder.
    """
    folder = folder.absolute()
    with atomic.replaced_folder(folder, durable=True) as aside:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in named}
        save_file(tensors, aside / weights_file, metadata={"format": "pt"})
        for name, content in files.items():
            (aside / name).write_bytes(content)
        manifest = {
            "schema": _SCHEMA,
            "file": weights_file,
            "sha256": _file_sha256(aside / weights_file),
            "metadata": dict(metadata),
        }
        (aside / _MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of `folder` on the CPU; raises ContractError (`bad_weights`) unless every byte is as it was saved."""
    manifest = _manifest(folder)
    file = folder / Path(str(manifest.get("file", _WEIGHTS))).name
    try:
        if _file_sha256(file) != manifest["sha256"]:
            raise ContractError("bad_weights", f"{file} does not match its manifest: it is damaged")
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise ContractError("bad_weights", f"{folder}: {error}") from error


def read_metadata(folder: Path) -> dict[str, str]:
    """What `save_weights` was given as metadata; raises ContractError (`bad_weights`) for a folder it did not write."""
    metadata: dict[str, str] = _manifest(folder)["metadata"]
    return metadata


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise ContractError("bad_weights", f"{folder} has no readable manifest: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != _SCHEMA or "sha256" not in manifest:
        raise ContractError("bad_weights", f"{folder / _MANIFEST} is not a manifest of schema {_SCHEMA}")
    return manifest


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
