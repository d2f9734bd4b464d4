"""What `kubectl kustomize` makes of the manifests, as plain objects."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cluster import render as run
from headrace.cluster.objects import Submission

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("cpu", "single-node-gpu", "cluster")
# Each component, behind those that it needs.
COMPONENTS = {
    "gpu": ("gpu",),
    "colocate": ("colocate",),
    "hub": ("gpu", "hub"),
    "jobset": ("jobset",),
    "leader-worker-set": ("gpu", "hub", "leader-worker-set"),
    "keda": ("keda",),
    "hpa": ("hpa",),
    "environment": ("environment", "colocate"),
    "environment-keda": ("environment", "environment-keda"),
    "environment-sandbox": ("environment", "environment-sandbox"),
    "reward-sandbox": ("reward-sandbox",),
    "kueue": ("kueue",),
    "monitoring": ("monitoring",),
    "grafana": ("grafana",),
    "sandbox-gvisor": ("sandbox-gvisor",),
    "tls": ("tls",),
    "mutual-tls": ("mutual-tls",),
    "cert-manager": ("mutual-tls", "cert-manager"),
    "everything": (
        *("gpu", "hub", "environment", "environment-sandbox", "colocate", "leader-worker-set", "jobset", "kueue"),
        *("monitoring", "grafana", "reward-sandbox", "sandbox-gvisor", "tls", "mutual-tls"),
    ),
}
ENCRYPTED = tuple(f"{name}+{part}" for name in ("base", *OVERLAYS) for part in ("mutual-tls", "cert-manager"))
"""Over TLS, with certificates of one's own and with those of cert-manager."""
RUNS: dict[str, Submission] = {
    "run-cpu": Submission(name="exp1", namespace="headrace"),
    "run-broker": Submission(name="exp1", namespace="headrace", broker="rediss://:secret@valkey.example:6379/0"),
    "run-gpu": Submission(
        name="exp2",
        namespace="headrace",
        gpus=24,
        queue="team",
        registry="registry.example/team",
        components=("keda", "environment", "environment-keda"),
        priority_class="headrace-rollout",
    ),
}
"""Those that `headrace k8s render` prints."""
SHIPPED = (*OVERLAYS, *dict.fromkeys((*(f"base+{name}" for name in COMPONENTS), *ENCRYPTED)))
ALL = (*SHIPPED, *RUNS)
Manifest = dict[str, Any]
CPU_RUN = """
[run]
max_steps = 40
max_staleness = 1
[model.make]
characters = "0123456789+="
[data]
path = "prompts.jsonl"
[batch]
groups = 4
group_size = 4
[rollout.sampling]
max_tokens = 6
[[reward.scorers]]
name = "length"
options = { target = 3 }
[trainer]
checkpoint_every = 5
"""
GPU_RUN = """
[run]
device = "cuda"
[model]
path = "/runs/models/Qwen/Qwen3-8B"
[data]
path = "openai/gsm8k"
subset = "main"
[rollout]
engine = "sglang"
[rollout.sglang]
venv = "/opt/engine"
tp = 2
[[reward.scorers]]
name = "numeric"
[trainer]
backend = "fsdp2"
ranks = 16
nodes = 2
"""

_POD_AT = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "Job": ("spec", "template"),
}


def need_kubectl() -> None:
    """Skips aloud without kubectl; where HEADRACE_REQUIRE_DOCKER=1 says that it is there, fails."""
    if shutil.which("kubectl"):
        return
    if os.environ.get("HEADRACE_REQUIRE_DOCKER") == "1":
        pytest.fail("HEADRACE_REQUIRE_DOCKER=1, but there is no kubectl")
    pytest.skip("no kubectl: install one of 1.24 or newer, which brings kustomize with components")


def make_secrets(folder: Path, *options: str) -> None:
    """As docs/kubernetes.md has its reader make them."""
    done = attempt_secrets(folder, *options)
    assert done.returncode == 0 and not done.stdout, done.stderr


def attempt_secrets(folder: Path, *options: str, path: str = "") -> "subprocess.CompletedProcess[str]":
    """`secrets.sh FOLDER ...`, which may fail. On its PATH is this Python's `headrace`, or `path`."""
    told = {**os.environ, "PATH": path or f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = ["sh", KUBERNETES / "secrets.sh", folder, *options]
    return subprocess.run(words, env=told, capture_output=True, text=True, timeout=60, check=False)


@functools.cache
def render(name: str) -> tuple[Manifest, ...]:
    """The objects of an overlay (`cpu`), or of the base or an overlay with a component (`base+keda`)."""
    if name in OVERLAYS:
        return kustomize(KUBERNETES / "overlays" / name)
    if name in RUNS:
        return run_of(RUNS[name], GPU_RUN if RUNS[name].gpus else CPU_RUN)
    below, _, component = name.partition("+")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        # Kustomize takes no absolute paths.
        kubernetes = Path(os.path.relpath(KUBERNETES, folder))
        parts = COMPONENTS[component]
        file = {
            "resources": [f"{kubernetes}/{'base' if below == 'base' else f'overlays/{below}'}"],
            "components": [f"{kubernetes}/components/{part}" for part in parts],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(file))
        return kustomize(folder)


def run_of(asked: Submission, config: str) -> tuple[Manifest, ...]:
    """The objects of a run with this `run.toml`."""
    need_kubectl()
    with tempfile.TemporaryDirectory() as made:
        (file := Path(made) / "run.toml").write_text(config)
        (Path(made) / "prompts.jsonl").write_text('{"prompt": "1+2="}\n' * 50)
        return tuple(run.render(file, asked))


def kustomize(folder: Path) -> tuple[Manifest, ...]:
    """The objects of a folder with a kustomization."""
    need_kubectl()
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(documents(done.stdout))


def documents(text: str) -> Iterator[Any]:
    """What `yaml.safe_load_all` gives, ten times faster."""
    loader = yaml.CSafeLoader(text)
    while loader.check_data():
        yield loader.get_data()


def named(manifests: tuple[Manifest, ...], kind: str, name: str) -> Manifest:
    """The one object of a kind with a name; a generated one without its hash."""
    fits = re.compile(rf"{re.escape(name)}(-[a-z0-9]{{10}})?")
    found = [one for one in manifests if one["kind"] == kind and fits.fullmatch(one["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of {kind}/{name}"
    return found[0]


def pods(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, Manifest]]:
    """Every pod template, with the name of what it belongs to."""
    for one in manifests:
        where = f"{one['kind']}/{one['metadata']['name']}"
        if path := _POD_AT.get(one["kind"]):
            yield where, functools.reduce(lambda found, key: found[key], path, one)
        elif one["kind"] == "JobSet":
            for job in one["spec"]["replicatedJobs"]:
                yield f"{where}/{job['name']}", job["template"]["spec"]["template"]
        elif one["kind"] == "LeaderWorkerSet":
            for name in ("leaderTemplate", "workerTemplate"):
                yield f"{where}/{name}", one["spec"]["leaderWorkerTemplate"][name]


def containers(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, Manifest, Manifest, bool]]:
    """Every container: where, its pod's spec, itself, whether it is an init container."""
    for where, template in pods(manifests):
        spec = template["spec"]
        for key, first in (("initContainers", True), ("containers", False)):
            for container in spec.get(key, ()):
                yield f"{where}/{container['name']}", spec, container, first
