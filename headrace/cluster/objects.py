"""Makes the objects of `deploy/kubernetes` those of one run: names, labels, addresses and sizes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
_COMPONENT, _RUN, _QUEUE = "app.kubernetes.io/component", "app.kubernetes.io/instance", "kueue.x-k8s.io/queue-name"
_GPU = "nvidia.com/gpu"
_SHARED = ("Namespace", "PriorityClass")
"""Kinds that other runs use too, and that must outlive this one."""
_WITH_NAME = {"configMap", "configMapKeyRef", "metadata", "scaleTargetRef", "secretKeyRef", "secretRef"}
_NAME = {"claimName", "secretName", "serviceAccountName", "serviceName", "subdomain"}
_ADDRESS = re.compile(r"(?<![\w./-])(orchestrator|trainer-node-0-0\.trainer-nodes)(?=:\d)")
_SCALERS = {"ScaledObject": "maxReplicaCount", "HorizontalPodAutoscaler": "maxReplicas"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Where a run goes in a cluster, and what it may use there."""

    name: str
    namespace: str
    gpus: int = 0
    queue: str = ""
    """Kueue's LocalQueue."""
    registry: str = ""
    """Prefix of the images' names; empty: none."""
    components: Sequence[str] = ()
    priority_class: str = ""
    """For rollouts; empty: the cluster's default."""
    storage: str = "200Gi"
    """Size of the volume."""
    broker: str = ""
    """URL of a broker outside; empty: the run has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a run takes of a cluster."""

    trainer_gpus: int
    """GPUs for each of the trainer's pods; 0: the run has none."""
    rollout_gpus: int
    """GPUs for each rollout."""
    replicas: int
    """Number of rollouts, or the most that a scaler may start; 0: what the manifests say."""
    one_node: bool
    """All pods are on one node, and so may share a volume that only one node mounts."""


def of_run(objects: Sequence[Object], name: str, namespace: str) -> list[Object]:
    """Names and labels each object by the run; it then selects this run's pods and addresses its services.

    Leaves out what a run shares with others: namespace and priority class.
    """
    own = [one for one in objects if one["kind"] not in _SHARED]
    names = {one["metadata"]["name"] for one in own} | {"trainer-nodes"}  # The JobSet's controller makes that Service.

    def prefixed(text: str) -> str:
        return f"{name}-{text}" if text in names else text

    def of(value: Any, key: str) -> Any:
        if isinstance(value, list):
            return [of(one, key) for one in value]
        if isinstance(value, str):
            value = value.replace('namespace="headrace",run="demo"', f'namespace="{namespace}",run="{name}"')
            value = _ADDRESS.sub(lambda found: ".".join(f"{name}-{part}" for part in found[1].split(".")), value)
            return prefixed(value) if key in _NAME else value
        if not isinstance(value, dict):
            return value
        found = {each: of(one, each) for each, one in value.items()}
        if key in _WITH_NAME and "name" in found:
            found["name"] = prefixed(found["name"])
        if _COMPONENT in found:
            found[_RUN] = name
        if any(one["key"] == _COMPONENT for one in found.get("matchExpressions", ())):
            found["matchLabels"] = {**found.get("matchLabels", {}), _RUN: name}
        return {"matchLabels": {_RUN: name}} if found == {} and key == "podSelector" else found

    found = [{key: value if key == "data" else of(value, key) for key, value in one.items()} for one in own]
    for one in found:
        one["metadata"]["labels"] = {**one["metadata"].get("labels", {}), _RUN: name}
    return found


def sized(objects: list[Object], asked: Submission, sizes: Sizes) -> list[Object]:
    """Sets GPUs, replicas, images, queue and volume, in place."""
    scaled = any(one["kind"] in _SCALERS for one in objects)
    for one in objects:
        spec, labels = one.get("spec", {}), one["metadata"]["labels"]
        if one["kind"] == "PersistentVolumeClaim":
            modes = ["ReadWriteOnce" if sizes.one_node else "ReadWriteMany"]
            spec |= {"accessModes": modes, "resources": {"requests": {"storage": asked.storage}}}
        elif one["metadata"]["name"].endswith("-rollout") and sizes.replicas:
            if one["kind"] in _SCALERS:
                spec[_SCALERS[one["kind"]]] = sizes.replicas
            elif one["kind"] == "Deployment" and not scaled:
                spec["replicas"] = sizes.replicas
        if _QUEUE in labels:
            labels[_QUEUE] = asked.queue
        for pod in _pods(one):
            if pod.pop("priorityClassName", None) and asked.priority_class:
                pod["priorityClassName"] = asked.priority_class
            for container in (*pod["containers"], *pod.get("initContainers", ())):
                _size(container, asked.registry, sizes)
    return objects


def _size(container: Object, registry: str, sizes: Sizes) -> None:
    gpus = {"trainer": sizes.trainer_gpus, "rollout": sizes.rollout_gpus}.get(container["name"])
    if container["image"].startswith("headrace-"):
        image = container["image"].replace("-cpu", "-gpu") if sizes.trainer_gpus else container["image"]
        container["image"] = f"{registry}/{image}" if registry else image
    if not sizes.trainer_gpus and container["name"] != "await-run":
        # Without a GPU it is a trial, which takes what is free, as `overlays/cpu` does.
        container["resources"]["requests"] = {"cpu": "100m", "memory": "512Mi"}
    elif sizes.trainer_gpus and gpus:
        container["resources"] = {
            "requests": {"cpu": 4 * gpus, "memory": f"{32 * gpus}Gi", _GPU: gpus},
            "limits": {"memory": f"{128 * gpus}Gi", _GPU: gpus},
        }


def _pods(value: Any) -> Iterator[Object]:
    """Every pod's spec within an object, at whatever depth."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _pods(one)
