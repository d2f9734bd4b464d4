"""A real Kubernetes control plane for tests, started by the scripts of the folder that HEADRACE_KUBERNETES names.

`start.sh FOLDER` starts etcd, API server, controllers and scheduler, `node.sh` a node, and
`stop.sh FOLDER --wipe` ends all of them.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.supervisor.ports import is_free
from tests.integration.kubernetes.schemas import schemas_folder
from tests.ports import free_port

_VARIABLE = "HEADRACE_KUBERNETES"
_START_S, _STOP_S = 300, 180


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One that runs, with its data in `folder`."""

    recipe: Path
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """The file that lets its administrator in."""
        return self.folder / "kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that are to find it, `kubectl` among them."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def attempt(self, *words: str, told: str | None = None, seconds: float = 120) -> "subprocess.CompletedProcess[str]":
        """`kubectl ...` with `told` on its stdin; it may fail."""
        command = ["kubectl", *words]
        return subprocess.run(
            command, env=self.environment, input=told, capture_output=True, text=True, timeout=seconds, check=False
        )

    def kubectl(self, *words: str, told: str | None = None, seconds: float = 120) -> str:
        """`kubectl ...`; its stdout."""
        done = self.attempt(*words, told=told, seconds=seconds)
        assert done.returncode == 0, f"kubectl {' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Applies objects, for good."""
        self.kubectl("apply", "-f", "-", told=yaml.safe_dump_all(manifests))

    def stop(self) -> None:
        """Ends it, and what runs on its real node; may be repeated."""
        _script(self.recipe / "stop.sh", self.folder, "--wipe", environment=self.environment, seconds=_STOP_S)


@contextmanager
def started() -> Iterator[ControlPlane]:
    """Starts a control plane with the CRDs of HEADRACE_SCHEMAS, and takes it away. Skips aloud without the folder."""
    recipe, schemas = need_kubernetes()
    folder = Path(tempfile.mkdtemp(prefix="headrace-kubernetes-"))
    plane = ControlPlane(recipe, folder)
    etcd, api = _ports()
    told = {"ETCD_PORT": str(etcd), "API_PORT": str(api), "CRDS": str(schemas)}
    try:
        with _binaries(folder):
            done = _script(recipe / "start.sh", folder, environment={**os.environ, **told}, seconds=_START_S)
        assert done.returncode == 0, f"{recipe / 'start.sh'}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(folder, ignore_errors=True)


def need_kubernetes() -> tuple[Path, Path]:
    """The folder of the scripts, and that of the CRDs; skips aloud, or fails if HEADRACE_REQUIRE_KUBERNETES=1."""
    recipe, schemas = os.environ.get(_VARIABLE), schemas_folder()
    missing = [name for name, found in ((_VARIABLE, recipe), ("HEADRACE_SCHEMAS", schemas)) if not found]
    if missing and os.environ.get("HEADRACE_REQUIRE_KUBERNETES") == "1":
        pytest.fail(f"HEADRACE_REQUIRE_KUBERNETES=1, but {' and '.join(missing)} are not set")
    if recipe is None or schemas is None:
        pytest.skip(f"no {' and '.join(missing)}: CONTRIBUTING.md describes the folders that they name")
    if not (Path(recipe) / "start.sh").is_file():
        pytest.fail(f"{_VARIABLE}={recipe}: there is no start.sh")
    return Path(recipe).resolve(), schemas.resolve()


@contextmanager
def _binaries(folder: Path) -> Iterator[None]:
    """Lends the folder the binaries that an earlier start has unpacked, one start at a time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "kubernetes"
    (cache / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin").symlink_to(cache / "bin")
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ports() -> tuple[int, int]:
    """Etcd's port, behind which another one is free, and the API server's."""
    etcd = free_port()
    while not is_free(etcd + 1):
        etcd = free_port()
    api = free_port()
    return (etcd, api) if api != etcd + 1 else _ports()


def _script(
    script: Path, *words: str | Path, environment: dict[str, str], seconds: float
) -> "subprocess.CompletedProcess[str]":
    command = ["bash", script, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
