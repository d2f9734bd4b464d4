"""Checkpoints: published whole or not at all, proven by a manifest, never pickled.

`checkpoints/step-000012/` holds `model.safetensors`, `optimizer.safetensors`, `random.safetensors`, `state.json` and
`manifest.json` with the SHA-256 of each; beside a critic or a reference that moves, their tensors too. Of several ranks
each writes a shard, `model-00001-of-00004.safetensors`: its rows of each tensor, in the order of ranks. Loaded, all
tensors are whole, so any number of ranks and any backend can load them. It is written aside, hashed on the way, fsynced
and renamed.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headrace.services.trainer.durability.fate_table import GroupFate
from headrace.services.trainer.model.tensor_files import write_tensors
from headrace.wire.errors import DataError
from headrace.wire.host.disk_fault import writing
from headrace.wire.process import failpoints
from headrace.wire.rundir import atomic
from headrace.wire.rundir.file_digests import sha256_of
from headrace.wire.telemetry.logs import get_logger

SCHEMA = 1
_SHARDED = 2
"""Schema of a checkpoint in shards, which older versions refuse."""
_NAME = re.compile(r"step-(\d{6,})")
_MANIFEST = "manifest.json"
_SHARD = re.compile(r"(.+?)(-\d{5}-of-\d{5})?\.safetensors")
_ALWAYS = ("model", "optimizer", "random")
log = get_logger("trainer.checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The part of a checkpoint that is not tensors."""

    step: int
    incarnation: int
    frontier: int
    fates: tuple[GroupFate, ...]
    """Fates of the groups above the frontier."""
    coefficients: dict[str, float]
    """Adaptive ones, such as a KL coefficient under control."""
    config_digest: str
    code_digest: str = ""
    """Hex sha256 of the user's own code that trained it; empty, and not written, for a run without."""
    weights_digest: str = ""
    """Digest of the version as it was published and journaled; empty in a stage without a journal.

    `headrace check` reads it from the manifest; it is not loaded.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose bytes were verified."""

    state: CheckpointState
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    random_states: dict[str, Tensor]
    others: dict[str, dict[str, Tensor]]
    """By file name: `critic`, `critic-optimizer`, `reference`."""
    path: Path


class CheckpointDamagedError(DataError):
    """A checkpoint does not match its manifest, or cannot be read."""


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads and verifies a checkpoint; raises CheckpointDamagedError for any byte that is not as it was written."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        if manifest["schema"] not in (SCHEMA, _SHARDED):
            raise CheckpointDamagedError(f"{path} has schema {manifest['schema']}, this build reads up to {_SHARDED}")
        for name, digest in manifest["sha256"].items():
            if sha256_of(path / name) != digest:
                raise CheckpointDamagedError(f"{path / name} does not match its manifest")
        files = _read(path, manifest["sha256"])
        weights, optimizer, random_states = (files.pop(name) for name in _ALWAYS)
        return Checkpoint(
            state=_state(json.loads((path / "state.json").read_text())),
            weights=weights,
            optimizer=optimizer,
            random_states=random_states,
            others=files,
            path=path,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        if isinstance(error, CheckpointDamagedError):
            raise
        raise CheckpointDamagedError(f"{path}: {error}") from error


class CheckpointStore:
    """The checkpoints of one run: `folder` with at most `keep` whole ones."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder = folder
        self.keep = keep
        self._proven: set[int] = set()

    def is_whole(self, step: int) -> bool:
        """Whether this life has written or verified the checkpoint of a step."""
        return step in self._proven

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is, once it is published."""
        return self._folder / f"step-{step:06d}"

    def aside(self, step: int) -> Path:
        """Where the checkpoint of a step is while it is written."""
        return atomic.aside_of(self.path(step))

    def prepare(self, step: int) -> Path:
        """Makes the folder into which all ranks write before `save`, and removes what killed lives left."""
        aside = self.aside(step)
        with writing(aside):
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic.remove_left_overs(self._folder)
            aside.mkdir()
        return aside

    def save(
        self,
        state: CheckpointState,
        files: Mapping[str, Mapping[str, Tensor]],
        *,
        ranks: int = 1,
        others: Callable[[], Mapping[str, str]] = dict,
        midway: Callable[[], None] = lambda: None,
    ) -> Path:
        """Publishes a checkpoint and removes the oldest; `midway` is called before it can be seen.

        `files`: file name -> tensors of the CPU; `model`, `optimizer` and `random` are always among them. Of several
        `ranks` it must be prepared; `others` waits for their shards, and returns the digests.
        """
        if ranks == 1:
            self.prepare(state.step)
        final = self.path(state.step)
        aside = self.aside(state.step)
        try:
            with writing(final):
                hashes = write_shards(aside, files, rank=0, ranks=ranks)
                _write_manifest(aside, state, {**hashes, **others()}, schema=SCHEMA if ranks == 1 else _SHARDED)
                failpoints.reach("step.mid_checkpoint")
                midway()
                atomic.publish_folder(aside, final, durable=True)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        self._proven.add(state.step)
        self._prune()
        return final

    def newest(self) -> Checkpoint | None:
        """Returns the newest checkpoint that verifies, or None; damaged ones are skipped with a warning."""
        for step, path in reversed(self.published()):
            try:
                checkpoint = load_checkpoint(path)
            except CheckpointDamagedError as error:
                log.warning("checkpoint_damaged", path=str(path), reason=str(error))
            else:
                self._proven.add(step)
                return checkpoint
        return None

    def published(self) -> list[tuple[int, Path]]:
        """Returns (step, path) of all checkpoints, oldest first, without verifying them."""
        if not self._folder.is_dir():
            return []
        found = ((_NAME.fullmatch(path.name), path) for path in self._folder.iterdir())
        return sorted((int(match.group(1)), path) for match, path in found if match)

    def manifest_digest(self, step: int) -> str:
        """Hex sha256 of a published checkpoint's manifest, which has the digests of its files. Raises OSError."""
        return sha256_of(self._folder / f"step-{step:06d}" / _MANIFEST)

    def covered_step(self) -> int:
        """The step up to which nothing needs to be replayed, even if the newest checkpoint is lost.

        The oldest kept, once there are `keep` whole ones; before that 0, the model that the run began with.
        """
        whole = [step for step, _ in self.published() if step in self._proven]
        return min(whole) if len(whole) >= self.keep else 0

    def _prune(self) -> None:
        """Keeps the newest `keep` whole ones. Nothing is removed before as many newer ones are proven."""
        kept = 0
        for step, path in reversed(self.published()):
            if kept == self.keep:
                shutil.rmtree(path)
                self._proven.discard(step)
            elif step in self._proven or _is_whole(path):
                self._proven.add(step)
                kept += 1
            elif kept:
                shutil.rmtree(path)


def write_shards(
    folder: Path, files: Mapping[str, Mapping[str, Tensor]], *, rank: int, ranks: int, durable: bool = False
) -> dict[str, str]:
    """Writes one rank's shard of each file; returns file name -> hex sha256. Raises OSError."""
    hashes: dict[str, str] = {}
    shard = f"-{rank + 1:05d}-of-{ranks:05d}" if ranks > 1 else ""
    for file, tensors in files.items():
        path = folder / f"{file}{shard}.safetensors"
        hashes[path.name] = write_tensors(path, tensors, midway=lambda: failpoints.reach("step.half_written"))
        if durable:
            atomic.sync(path)
    return hashes


def _read(path: Path, names: Iterable[str]) -> dict[str, dict[str, Tensor]]:
    """File -> tensors, each put together from the rows of its shards."""
    found: dict[str, dict[str, list[Tensor]]] = {}
    for name in sorted(names):
        if match := _SHARD.fullmatch(name):
            tensors = found.setdefault(match[1], {})
            for key, rows in load_file(path / name).items():
                tensors.setdefault(key, []).append(rows)
    return {file: {key: _whole(rows) for key, rows in tensors.items()} for file, tensors in found.items()}


def _whole(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _write_manifest(folder: Path, state: CheckpointState, hashes: dict[str, str], *, schema: int) -> None:
    values = asdict(state)
    # In the manifest: an older version refuses a state with keys that it does not know.
    weights_digest = values.pop("weights_digest")
    if not state.code_digest:
        del values["code_digest"]
    text = json.dumps({"schema": schema, **values})
    (folder / "state.json").write_text(text)
    hashes["state.json"] = hashlib.sha256(text.encode()).hexdigest()
    manifest = {"schema": schema, "sha256": hashes} | ({"weights_digest": weights_digest} if weights_digest else {})
    failpoints.reach("step.before_manifest")
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))


def _state(values: dict[str, Any]) -> CheckpointState:
    values.pop("schema")
    fates = tuple(GroupFate(**fate) for fate in values.pop("fates"))
    return CheckpointState(**values, fates=fates)


def _is_whole(path: Path) -> bool:
    try:
        load_checkpoint(path)
    except CheckpointDamagedError:
        return False
    return True
