"""Copies of the user's own code in a run directory: made at a start, compared at a resume. Imports no torch.

`RUN/algorithm` is the copy of `algorithm.path`, which all ranks and lives import; `RUN/environment` that of
`environment.path`, which the children of episodes import. A file beside the settings has the digest of each file of a
copy: what the start has checked.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths

_LEFT_OUT = ("__pycache__", "..*")
"""Bytecode, and the folders with a date in their names in which Kubernetes keeps a mounted ConfigMap's files."""
_NAMED = 4
"""Number of changed files that a message names."""


@dataclass(frozen=True, slots=True)
class OwnCode:
    """Where a run keeps one copy, and what its messages call it."""

    table: str
    """The table of the config whose `path` is copied."""
    folder: Path
    digests: Path
    way_out: str
    """What to do if the copy is not as it was recorded."""

    @property
    def key(self) -> str:
        """The key of the config."""
        return f"{self.table}.path"


def algorithm_code(run_dir: Path) -> OwnCode:
    """The copy that the run trains with."""
    paths = RunPaths(run_dir)
    way_out = "edit algorithm.path instead, and resume with --accept-changed-code"
    return OwnCode("algorithm", paths.code, paths.code_digests, way_out)


def environment_code(run_dir: Path) -> OwnCode:
    """The copy that the run plays."""
    paths = RunPaths(run_dir)
    return OwnCode("environment", paths.environment, paths.environment_digests, "restore it, or begin a new run")


@dataclass(frozen=True, slots=True)
class CodeFiles:
    """Contents of a folder: relative name -> hex sha256, of all files that are copied."""

    sha256: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Hex sha256 of names and contents."""
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.sha256.items()))
        return hashlib.sha256(lines.encode()).hexdigest()

    def changed(self, other: "CodeFiles") -> list[str]:
        """Names of the files that are not the same in both."""
        names = sorted(self.sha256.keys() | other.sha256.keys())
        return [name for name in names if self.sha256.get(name) != other.sha256.get(name)]


def files_in(folder: Path) -> Iterator[Path]:
    """The files that a copy of the folder has, links followed as a copy follows them."""
    for parent, folders, names in os.walk(folder, followlinks=True):
        left_out = shutil.ignore_patterns(*_LEFT_OUT)(parent, [*folders, *names])
        folders[:] = sorted(set(folders) - left_out)
        yield from (Path(parent) / name for name in sorted(set(names) - left_out))


def read_files(folder: Path) -> CodeFiles:
    """The files of a folder. Raises DataError if one cannot be read."""
    try:
        return CodeFiles({path.relative_to(folder).as_posix(): _sha256(path) for path in files_in(folder)})
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error}") from error


def stage_copy(source: Path, own: OwnCode) -> Path:
    """Copies the user's folder aside, into the run directory; `publish_copy` gives it its name."""
    aside = atomic.aside_of(own.folder)
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(source, aside, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    return aside


def publish_copy(aside: Path, own: OwnCode) -> None:
    """Makes the copy the run's, whole or not at all, and records its files."""
    files = read_files(aside)
    atomic.publish_folder(aside, own.folder, durable=True)
    record = json.dumps({"digest": files.digest, "sha256": files.sha256}, indent=1)
    atomic.write_text(own.digests, record, durable=True)


def recorded_files(own: OwnCode) -> CodeFiles | None:
    """The files of the copy as they were recorded; None for a run without code of its own."""
    try:
        return CodeFiles(json.loads(own.digests.read_text(encoding="utf-8"))["sha256"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{own.digests} cannot be read: {error}") from error


def checked_digest(own: OwnCode) -> str:
    """The digest of the run's copy. Raises ConfigError if it is not as it was recorded."""
    recorded, found = recorded_files(own), read_files(own.folder)
    if recorded is None or found.digest != recorded.digest:
        names = found.changed(recorded) if recorded is not None else sorted(found.sha256)
        raise ConfigError(
            f"{own.folder} is not the code that the run was started with "
            f"({found.digest[:12]}, recorded is {recorded.digest[:12] if recorded else 'none'}; "
            f"{in_words(names)}): {own.way_out}"
        )
    return found.digest


def in_words(names: list[str]) -> str:
    """The first few names of changed files."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"changed: {', '.join(names[:_NAMED])}{more}" if names else "no file differs"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
