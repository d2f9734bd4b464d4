"""Renders the manifests of one run: `kubectl kustomize` assembles those of `deploy/kubernetes`."""

import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.cluster.objects import Object, Sizes, Submission, of_run, sized
from headrace.config.resolve import resolve
from headrace.config.schema import RunFile
from headrace.supervisor.once import run_once
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited

MANIFESTS = (Path(__file__).parent / "manifests").resolve()
COMPONENTS = (
    *("gpu", "hub", "environment", "environment-sandbox", "reward-sandbox", "colocate", "keda", "environment-keda"),
    *("hpa", "nodes", "jobset", "kueue", "sandbox-gvisor", "external-broker"),
)
"""Components of a run, in the order in which kustomize must apply them; `nodes` is made here."""
_MODELS = "/runs/models"
_RENDER_S = 120


def render(file: Path, asked: Submission) -> list[Object]:
    """Returns the objects of a run; keeps its secrets in `NAME-secrets` beside the config. Raises ConfigError."""
    config = resolve(file).config
    _check(asked, config)
    chosen = _components(asked, config)
    secrets = file.parent / f"{asked.name}-secrets"
    _run("sh", str(MANIFESTS / "secrets.sh"), str(secrets), BROKER_HOST=f"{asked.name}-valkey", BROKER_URL=asked.broker)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        shutil.copytree(secrets, folder / "secrets")
        _write(folder, asked, config, chosen, [shutil.copy(one, made) for one in _own_files(file)])
        import yaml

        objects = of_run(list(yaml.safe_load_all(_run("kubectl", "kustomize", made))), asked.name, asked.namespace)
    return sized(objects, asked, _sizes(asked, config, one_node="colocate" in chosen))


def _check(asked: Submission, config: RunFile) -> None:
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", asked.name):
        raise ConfigError(f"--name {asked.name}: give at most 32 lower-case letters, digits and -, a letter first")
    if unknown := sorted({*asked.components} - {*COMPONENTS}):
        raise ConfigError(f"--component {unknown[0]}: those of a run are {', '.join(COMPONENTS)}")
    if config.run.device.startswith("cuda") != bool(asked.gpus):
        raise ConfigError(
            f'--gpus {asked.gpus}: run.device is "{config.run.device}"; GPUs need "cuda", and "cuda" GPUs'
        )
    if not shutil.which("kubectl"):
        raise ConfigError("there is no kubectl, 1.24 or newer, whose kustomize assembles the manifests: install it")


def _components(asked: Submission, config: RunFile) -> list[str]:
    wanted = {*asked.components, "gpu" if asked.gpus else "colocate"}
    wanted |= {"hub"} if config.model.path.is_relative_to(_MODELS) else set()
    wanted |= {"nodes", "jobset"} if config.trainer.nodes > 1 else set()
    wanted |= {"kueue"} if asked.queue else set()
    wanted |= {"external-broker"} if asked.broker else set()
    return [one for one in COMPONENTS if one in wanted]


def _sizes(asked: Submission, config: RunFile, *, one_node: bool) -> Sizes:
    """The GPUs that the trainer leaves are the rollouts'."""
    ranks, tp = config.trainer.ranks, config.rollout.sglang.tp
    replicas, left = divmod(asked.gpus - ranks, tp)
    if asked.gpus and (replicas < 1 or left):
        raise ConfigError(
            f"--gpus {asked.gpus}: trainer.ranks = {ranks} of them train, and each rollout has "
            f"rollout.sglang.tp = {tp}: give {ranks + max(replicas, 1) * tp}"
        )
    return Sizes(
        trainer_gpus=ranks // config.trainer.nodes if asked.gpus else 0,
        rollout_gpus=tp,
        replicas=replicas if asked.gpus else 0,
        one_node=one_node,
    )


def _write(folder: Path, asked: Submission, config: RunFile, components: Sequence[str], files: Sequence[str]) -> None:
    """Writes the kustomization of the run: JSON is YAML."""
    above = os.path.relpath(MANIFESTS, folder)  # kustomize takes no absolute paths.
    literals = [f"RUN={asked.name}"]
    if config.model.path.is_relative_to(_MODELS):
        literals.append(f"MODEL={config.model.path.relative_to(_MODELS)}")
    names = [Path(one).name for one in files]
    patch = [{"op": "replace", "path": "/spec/parallelism", "value": config.trainer.nodes}]
    nodes = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [{"target": {"kind": "Job", "name": "trainer"}, "patch": json.dumps(patch)}],
    }
    run = {
        "namespace": asked.namespace,
        "resources": [f"{above}/base"],
        "components": [*(one if one == "nodes" else f"{above}/components/{one}" for one in components), "secrets"],
        "configMapGenerator": [
            {"name": "headrace", "namespace": "headrace", "behavior": "merge", "literals": literals},
            {
                **{"name": "run-file", "namespace": "headrace", "behavior": "replace"},
                "files": [f"run.toml={names[0]}", *names[1:]],
            },
        ],
    }
    (folder / "nodes").mkdir()
    (folder / "nodes" / "kustomization.yaml").write_text(json.dumps(nodes))
    (folder / "kustomization.yaml").write_text(json.dumps(run))


def _own_files(file: Path) -> list[Path]:
    """The config, and modules and files beside it, which become a ConfigMap. Raises ConfigError for a folder."""
    file = file.resolve()
    named = [(file.parent / text).resolve() for text in _texts(tomllib.loads(file.read_text(encoding="utf-8")))]
    inside = [path for path in named if file.parent in path.parents and path.exists()]
    for path in inside:
        if path.is_dir() or path.parent != file.parent:
            raise ConfigError(
                f"{file}: {path}: a ConfigMap has no folders: copy it to the volume and name it /runs/..."
            )
    return list(dict.fromkeys([file, *sorted(file.parent.glob("*.py")), *inside]))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def _run(*command: str, **variables: str) -> str:
    return run_once("rendering", command, env={**inherited(), **variables}, log=None, timeout_s=_RENDER_S)
