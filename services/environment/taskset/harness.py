"""The scripts of a harness, with the environments of Python that uv makes for them: synced once, then needed offline.

A harness of `verifiers` is a script with its own dependencies. The package would sync it in the first episode of each
process; in the sandbox of an episode there is no network, so this is done before, outside.

    python -m headrace.services.environment.taskset.harness NAME
"""

import asyncio
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.atomic import write_text
from headrace.wire.rundir.own_code import files_in

FOLDER = "HEADRACE_HARNESS_DIR"
"""Variable with the folder of the scripts; an image has its own."""
PLAYED = ("null", "bash")
"""Harnesses that speak chat completions and need no container."""
_INTERPRETERS = "interpreters.json"
_SYNC, _SYNC_S, _LOOK_S = "headrace.services.environment.taskset.sync", 300.0, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessScripts:
    """Scripts that are there, and what runs them."""

    folder: Path
    interpreters: Mapping[str, str]
    """The interpreter of each script, both with their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessChoice:
    """Which harness plays which taskset."""

    name: str
    taskset: str
    path: Path | None
    """Folder of the user's modules."""

    def check(self) -> None:
        """Raises ConfigError for a harness that is not played."""
        if self.name not in (*PLAYED, self.taskset):
            raise ConfigError(
                f'environment.harness = "{self.name}": it needs a container, or speaks no chat completions, whose '
                f"tokens are known; played are {', '.join(PLAYED)}, and one that the taskset brings "
                f'("{self.taskset}")'
            )

    def folder(self, given: Mapping[str, str]) -> Path:
        """Where its scripts lie, by the versions of package and Python, and by the code of a harness of the user's.

        Raises ConfigError if the package is missing.
        """
        try:
            package = version("verifiers")
        except PackageNotFoundError:
            raise ConfigError(
                f'environment.name = "verifiers:{self.taskset}": the package verifiers is missing where this runs: pip '
                "install 'headrace[verifiers]'"
            ) from None
        cache = os.path.join(given.get("XDG_CACHE_HOME") or Path.home() / ".cache", "headrace/harness")
        base = Path(given.get(FOLDER) or cache)
        name = self.name if self.name in PLAYED else f"{self.name}-{_digest(self.path or _installed(self.name))}"
        return base / f"verifiers-{package}-python{sys.version_info[0]}.{sys.version_info[1]}" / name


def read_scripts(folder: Path) -> HarnessScripts | None:
    """The scripts that were synced into a folder; None if they were not, or if one or its interpreter is gone."""
    try:
        found = json.loads((folder / _INTERPRETERS).read_text())
    except (OSError, ValueError):
        return None
    there = all(Path(path).is_file() for both in found.items() for path in both)
    return HarnessScripts(folder=folder, interpreters=found) if there else None


async def ready_scripts(choice: HarnessChoice) -> HarnessScripts:
    """The scripts of a harness, synced by uv if they are not there yet. Raises ConfigError."""
    choice.check()
    folder = choice.folder(inherited())
    found = read_scripts(folder)
    return found if found is not None else await asyncio.to_thread(_synced, choice, folder)


def _installed(name: str) -> Path | None:
    """The folder of an installed taskset, which is not imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _digest(path: Path | None) -> str:
    found = hashlib.sha256()
    for file in sorted(files_in(path)) if path is not None else ():
        found.update(file.read_bytes())
    return found.hexdigest()[:12]


def _synced(choice: HarnessChoice, folder: Path) -> HarnessScripts:
    own, key = os.path.dirname(sys.executable), f'environment.harness = "{choice.name}"'
    path = os.pathsep.join([own, inherited().get("PATH") or os.defpath])
    if shutil.which("uv", path=path) is None:
        raise ConfigError(
            f"{key}: its script needs `uv`, and there is none on the PATH: pip install 'headrace[verifiers]'"
        )
    words = [sys.executable, "-m", _SYNC, choice.name, str(folder), str(choice.path or "")]
    uv = {
        "UV_CACHE_DIR": str(folder / "uv"),
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "1",  # A site's own authority, as pip takes it.
        "UV_COMPILE_BYTECODE": "1",  # Each episode starts the script, and has the folder read-only.
    }
    with _locked(folder):
        if (found := read_scripts(folder)) is not None:
            return found
        try:
            done = subprocess.run(
                words,
                env={**inherited(), **uv, "PATH": path},
                capture_output=True,
                text=True,
                timeout=_SYNC_S,
                check=False,
            )
            said = done.stderr.strip()[-1000:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            said = f"it was not done within {_SYNC_S:g} s"
        found = read_scripts(folder)
    if found is None or said:
        raise ConfigError(
            f"{key}: its script could not be synced into {folder}: {said or 'there is none'}. It is done once, with "
            f"access to a package index; or set {FOLDER} to a folder where it was done"
        )
    return found


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Several services of one machine may start at a time. Raises ConfigError if another one holds it too long."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 2 * _SYNC_S
    with (folder / ".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise ConfigError(f"{folder}: another process has synced a harness for {2 * _SYNC_S:g} s") from None
            time.sleep(_LOOK_S)
        yield


def write_interpreters(folder: Path, found: Mapping[str, str]) -> None:
    """Notes what was synced, whole or not at all."""
    write_text(folder / _INTERPRETERS, json.dumps(dict(found)), durable=True)


if __name__ == "__main__":
    # An image is built with the script of a harness of the package's own.
    asyncio.run(ready_scripts(HarnessChoice(name=sys.argv[1], taskset="", path=None)))
