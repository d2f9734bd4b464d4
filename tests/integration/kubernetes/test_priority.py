"""Whom the scheduler evicts for a trainer that needs a GPU: its own cluster's rollouts, and nobody else's pods."""

import json

import pytest

from tests.integration.kubernetes.control_plane import ControlPlane
from tests.integration.kubernetes.rendered import Manifest, named, render
from tests.waiting import until

pytestmark = pytest.mark.long
GPUS = {"nvidia.com/gpu": "1"}
NODE: Manifest = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "two-gpus"},
    "status": {
        "capacity": (room := {"cpu": "8", "memory": "8Gi", "pods": "9", "nvidia.com/gpu": "2"}),
        "allocatable": room,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
    },
}


def pod(name: str, owner: Manifest | None = None, **spec: object) -> Manifest:
    """A pod that holds one GPU, with the priority of the template of `owner`."""
    template = owner["spec"]["template"]["spec"] if owner else {}
    container = {"name": "one", "image": "none", "resources": {"requests": GPUS, "limits": GPUS}}
    spec |= {key: value for key, value in template.items() if key == "priorityClassName"}
    spec |= {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_a_trainer_that_comes_back_evicts_rollouts_and_no_pod_of_another_team(kubernetes: ControlPlane) -> None:
    manifests = render("single-node-gpu")
    trainer, rollout = named(manifests, "Job", "trainer"), named(manifests, "Deployment", "rollout")
    kubernetes.apply(*(one for one in manifests if one["kind"] == "PriorityClass"))

    def found(name: str) -> Manifest:
        shown: Manifest = json.loads(kubernetes.kubectl("get", "pod", name, "-o", "json"))
        return shown

    def events() -> str:
        return kubernetes.kubectl("get", "events")

    kubernetes.kubectl("create", "-f", "-", told=json.dumps(NODE))
    try:
        held = (pod("other", nodeName="two-gpus"), pod("rollout", rollout, nodeName="two-gpus"))
        kubernetes.apply(*held, pod("trainer", trainer))
        until(lambda: "deletionTimestamp" in found("rollout")["metadata"], "an eviction", seconds=60, detail=events)
        kubernetes.kubectl("delete", "pod", "rollout", "--force", "--grace-period=0")
        until(lambda: found("trainer")["spec"].get("nodeName"), "the trainer's place", seconds=60, detail=events)
        kubernetes.apply(pod("second", trainer))
        until(lambda: "No preemption victims" in events(), "a refusal", seconds=60, detail=events)
        assert "deletionTimestamp" not in found("other")["metadata"]
    finally:
        kubernetes.kubectl("delete", "pod", "--all", "--force", "--grace-period=0")
        kubernetes.kubectl("delete", "node", "two-gpus")
