"""The user's own code of a run: `RUN/algorithm`, the copy of `algorithm.path` that all ranks and lives import.

`RUN/config/algorithm.json` has the digest of every file of the copy: what the start has checked. Imports no torch.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths

_LEFT_OUT = "__pycache__"
_NAMED = 4
"""Number of changed files that a message names."""


@dataclass(frozen=True, slots=True)
class CodeFiles:
    """Contents of a folder: relative name -> hex sha256, of all files but those in `__pycache__`."""

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


def read_files(folder: Path) -> CodeFiles:
    """The files of a folder. Raises DataError if one cannot be read."""
    try:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and _LEFT_OUT not in path.parts]
        return CodeFiles({path.relative_to(folder).as_posix(): _sha256(path) for path in paths})
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error}") from error


def stage_copy(source: Path, run_dir: Path) -> Path:
    """Copies the user's folder aside, into the run directory; `publish_copy` gives it its name."""
    aside = atomic.aside_of(RunPaths(run_dir).code)
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(source, aside, ignore=shutil.ignore_patterns(_LEFT_OUT))
    return aside


def publish_copy(aside: Path, run_dir: Path) -> None:
    """Makes the copy the run's, whole or not at all, and records its files."""
    files = read_files(aside)
    atomic.publish_folder(aside, RunPaths(run_dir).code, durable=True)
    record = json.dumps({"digest": files.digest, "sha256": files.sha256}, indent=1)
    atomic.write_text(RunPaths(run_dir).code_digests, record, durable=True)


def recorded_files(run_dir: Path) -> CodeFiles | None:
    """The files of the copy as they were recorded; None for a run without code of its own."""
    try:
        return CodeFiles(json.loads(RunPaths(run_dir).code_digests.read_text(encoding="utf-8"))["sha256"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{RunPaths(run_dir).code_digests} cannot be read: {error}") from error


def checked_digest(run_dir: Path) -> str:
    """The digest of the run's copy. Raises ConfigError if it is not as it was recorded."""
    recorded, found = recorded_files(run_dir), read_files(RunPaths(run_dir).code)
    if recorded is None or found.digest != recorded.digest:
        names = found.changed(recorded) if recorded is not None else sorted(found.sha256)
        raise ConfigError(
            f"{RunPaths(run_dir).code} is not the code that the run was started with "
            f"({found.digest[:12]}, recorded is {recorded.digest[:12] if recorded else 'none'}; "
            f"{in_words(names)}): edit algorithm.path instead, and resume with --accept-changed-code"
        )
    return found.digest


def in_words(names: list[str]) -> str:
    """The first few names of changed files."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"changed: {', '.join(names[:_NAMED])}{more}" if names else "no file differs"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
