"""SHA-256 of files of the run directory, read in blocks: whole ones, ranges, and those that decide what a run is."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from headrace.wire.rundir.layout import RunPaths

_BLOCK = 1 << 20


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_range(path: Path, begin: int, end: int) -> str | None:
    """Hex sha256 of the bytes [begin, end) of a file; None if it is shorter. Raises OSError."""
    state, left = hashlib.sha256(), end - begin
    with path.open("rb") as file:
        file.seek(begin)
        while left:
            block = file.read(min(left, _BLOCK))
            if not block:
                return None
            state.update(block)
            left -= len(block)
    return state.hexdigest()


def sha256_of_files(folder: Path) -> dict[str, str]:
    """Relative name -> hex sha256 of all files below a folder; empty if there is none. Raises OSError."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}


def config_digests(run_dir: Path, changed: Path | None = None) -> dict[str, str]:
    """Name -> hex sha256 of the files that decide what a run computes, as far as they exist. Raises OSError.

    `changed`: a folder laid out like the run directory, whose files are about to replace those of `run_dir`. The
    configs of the processes are left out: each start writes its ports into them.
    """
    found: dict[str, str] = {}
    for name, path in _config_files(run_dir).items():
        newer = None if changed is None else changed / name
        chosen = newer if newer is not None and newer.is_file() else path
        if chosen.is_file():
            found[name] = sha256_of(chosen)
    return found


def _config_files(run_dir: Path) -> Mapping[str, Path]:
    run = RunPaths(run_dir)
    paths = (
        *(run.run_toml, run.data_summary, run.model_files, run.code_digests, run.environment_digests),
        *(run.prompts, run.eval_prompts, run.examples, run.eval_examples),
    )
    return {path.relative_to(run_dir).as_posix(): path for path in paths}
