"""Reads the files of a run that are replaced, not appended to, and hashes them in blocks. Judges none of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.inspect.history.lines import numbered_records
from headrace.inspect.history.record import RunHistory
from headrace.inspect.history.weights import weights_sha256
from headrace.wire.config.json_text import read_lenient
from headrace.wire.errors import DataError
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.file_digests import config_digests, sha256_of, sha256_of_files
from headrace.wire.rundir.jsonl import Record
from headrace.wire.rundir.layout import RunPaths, rollout_file
from headrace.wire.rundir.metrics import STEP

_CHECKPOINT = re.compile(r"step-(\d{6,})")
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """One folder in checkpoints/."""

    step: int
    manifest: str
    """Hex sha256 of its manifest; empty if it cannot be read."""
    problem: str
    """Why it cannot be resumed from; empty for a whole one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExport:
    """RUN/export."""

    exists: bool
    files: Mapping[str, str]
    """Relative name -> hex sha256."""
    weights_sha256: str | None
    """Digest of its tensors; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFiles:
    """What is on disk beside journal and events."""

    config: Mapping[str, str]
    checkpoints: Sequence[FoundCheckpoint]
    export: FoundExport
    metrics: Mapping[int, int]
    """Step -> number of its lines."""
    rollouts: Mapping[int, str]
    """Step -> hex sha256 of its file."""


def read_found(history: RunHistory, problems: list[str]) -> FoundFiles:
    """Reads all of them; what cannot be read is added to `problems`."""
    run = RunPaths(history.run_dir)
    for _ in numbered_records(run.evals, run.evals.name, problems):
        pass  # Lines that are none are problems; several of one version are not.
    try:
        config = config_digests(history.run_dir)
    except OSError as error:
        problems.append(f"the config cannot be read: {error}")
        config = {}
    return FoundFiles(
        config=config,
        checkpoints=_checkpoints(run.checkpoints),
        export=_export(run.export, problems),
        metrics=_metrics(run.metrics, problems),
        rollouts=_rollouts(run.rollouts, problems),
    )


def _metrics(path: Path, problems: list[str]) -> dict[int, int]:
    lines: dict[int, int] = {}
    for number, record in numbered_records(path, path.name, problems):
        step = record.get(STEP)
        if type(step) is int:
            lines[step] = lines.get(step, 0) + 1
        else:
            problems.append(f"{path.name} line {number} has no step")
    return lines


def _rollouts(folder: Path, problems: list[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for step in sorted(rollouts.files(folder)):
        path = rollout_file(folder, step)
        try:
            found[step] = sha256_of(path)
        except FileNotFoundError:
            continue  # The trainer of a live run has made room.
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror or error}")
    return found


def _checkpoints(folder: Path) -> list[FoundCheckpoint]:
    if not folder.is_dir():
        return []
    named = ((match, path) for path in folder.iterdir() if (match := _CHECKPOINT.fullmatch(path.name)))
    found = [_checkpoint(int(match[1]), path) for match, path in sorted(named, key=lambda pair: int(pair[0][1]))]
    return [one for one in found if one is not None]


def _checkpoint(step: int, path: Path) -> FoundCheckpoint | None:
    """None for one that the trainer of a live run has removed meanwhile."""
    manifest = ""
    try:
        manifest = sha256_of(path / _MANIFEST)
        files = _object(path / _MANIFEST).get("sha256")
        if not isinstance(files, dict) or "state.json" not in files:
            raise DataError(f"{_MANIFEST} lists no files")
        for name, wanted in files.items():
            if Path(name).name != name or sha256_of(path / name) != wanted:
                raise DataError(f"{name} does not match {_MANIFEST}")
        state = _object(path / "state.json")
        if state.get("step") != step:
            raise DataError(f"state.json is of step {state.get('step')}")
        problem = ""
    except (OSError, ValueError, DataError) as error:
        if not path.is_dir():
            return None
        problem = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
    return FoundCheckpoint(step=step, manifest=manifest, problem=problem)


def _object(path: Path) -> Record:
    try:
        value = read_lenient(path.read_bytes())
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DataError(f"{path.name} is no JSON object")
    return value


def _export(folder: Path, problems: list[str]) -> FoundExport:
    if not folder.is_dir():
        return FoundExport(exists=False, files={}, weights_sha256=None)
    tensors = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("adapter/*.safetensors"))
    files: dict[str, str] = {}
    weights = None
    try:
        files = sha256_of_files(folder)
        weights = weights_sha256(tensors) if tensors else None
    except (DataError, OSError) as error:
        problems.append(str(error))
    return FoundExport(exists=True, files=files, weights_sha256=weights)
