"""What becomes of the manifests over time: real controllers and a real scheduler, nodes without containers."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.kubernetes.control_plane import ControlPlane
from tests.integration.kubernetes.rendered import Manifest
from tests.integration.kubernetes.scenario import WAIT_S, Scenario, nodes_of, scenario
from tests.integration.kubernetes.test_docs import TEXT
from tests.waiting import until

pytestmark = pytest.mark.long
CPU_PODS = 5
"""The overlay `cpu` has one pod of each service."""
GPUS = 8
NUMBERS = itertools.count()


@pytest.fixture
def run(kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Scenario]:
    with scenario(kubernetes, f"scenario-{next(NUMBERS)}", tmp_path) as made:
        yield made


def test_a_wrong_image_is_mended_by_the_next_apply(kubernetes: ControlPlane, run: Scenario) -> None:
    wrong = [{"name": name, "newTag": "wrong"} for name in ("headrace-orchestrator", "valkey/valkey")]
    stateful = ("orchestrator-0", "valkey-0")
    with kubernetes.fake_nodes(3):
        run.apply("cpu", images=wrong)
        run.wait_for_pods(CPU_PODS)
        # As with an image that cannot be pulled.
        for name in stateful:
            run.annotate(name, ready="false")
        until(
            lambda: len(run.ready()) == CPU_PODS - 2,
            "the two to be unready",
            seconds=WAIT_S,
            detail=run.shown,
            every_s=1.0,
        )
        run.apply("cpu")
        until(lambda: not wrong_images(run), "no pod with a wrong image", seconds=WAIT_S, detail=run.shown, every_s=1.0)
        run.wait_for_pods(CPU_PODS)


def wrong_images(run: Scenario) -> list[str]:
    images = [one["image"] for pod in run.pods() for one in pod["spec"]["containers"]]
    return [image for image in images if image.endswith(":wrong")]


def test_a_node_with_all_pods_can_be_drained(kubernetes: ControlPlane, run: Scenario) -> None:
    (drain,) = set(re.findall(r"`kubectl (drain NODE [^`]*)`", TEXT))
    with kubernetes.fake_nodes(3):
        run.apply("cpu")
        run.kubectl("scale", "deployment/rollout", "--replicas=2")
        (before,) = nodes_of(run.wait_for_pods(CPU_PODS + 1))
        kubernetes.kubectl(*drain.replace("NODE", before).split(), "--timeout=60s")
        (after,) = nodes_of(run.wait_for_pods(CPU_PODS + 1))
        assert after != before


@pytest.mark.parametrize("rollouts", [6, 12], ids=["packed", "preempted"])
def test_the_trainer_comes_back_beside_rollouts_that_have_scaled_up(
    kubernetes: ControlPlane, run: Scenario, rollouts: int
) -> None:
    with kubernetes.fake_nodes(3, cpu=96, memory="1Ti", gpus=GPUS):
        job = apply_cluster(run)
        run.wait_for_pods(2, "trainer")
        run.kubectl("scale", "deployment/rollout", "--replicas=4")
        run.wait_for_pods(4, "rollout")
        run.kubectl("delete", "job", job, "--cascade=foreground", "--wait")
        run.kubectl("scale", "deployment/rollout", f"--replicas={rollouts}")
        # Six leave two nodes free for the trainer; of twelve some have to give way.
        assert len(nodes_of(run.wait_for_pods(rollouts, "rollout"))) == (1 if rollouts <= GPUS else 2)
        apply_cluster(run)
        assert len(nodes_of(run.wait_for_pods(2, "trainer"))) == 2
        until(
            lambda: len(run.ready("rollout")) == min(rollouts, GPUS),
            "the rollouts that have room to be ready",
            seconds=WAIT_S,
            detail=run.shown,
            every_s=1.0,
        )


def apply_cluster(run: Scenario) -> str:
    """Its workloads and what they need, with the Job that the JobSet's controller would make; the Job's name."""
    manifests = run.manifests("cluster")
    (jobset,) = [one for one in manifests if one["kind"] == "JobSet"]
    (replicated,) = jobset["spec"]["replicatedJobs"]
    metadata = {"name": f"trainer-{replicated['name']}-0", "namespace": run.namespace}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": replicated["template"]["spec"]}
    run.plane.apply(*(job if one is jobset else one for one in manifests))
    return metadata["name"]


def test_the_overlay_cpu_fits_a_small_machine(kubernetes: ControlPlane, run: Scenario) -> None:
    with kubernetes.fake_nodes(1, cpu=2, memory="4Gi"):
        run.apply("cpu")
        run.wait_for_pods(CPU_PODS)


def test_apply_keeps_a_manual_scale(kubernetes: ControlPlane, run: Scenario) -> None:
    with kubernetes.fake_nodes(3):
        run.apply("cpu")
        run.wait_for_pods(CPU_PODS)
        for name, count in (("rollout", 3), ("reward", 2)):
            run.kubectl("scale", f"deployment/{name}", f"--replicas={count}")
        run.wait_for_pods(CPU_PODS + 3)
        run.apply("cpu", images=[{"name": "headrace-rollout", "newTag": "another"}])
        replicas = {one["metadata"]["name"]: one["spec"]["replicas"] for one in deployments(run)}
        assert replicas == {"rollout": 3, "reward": 2}
        run.apply("cpu", replicas=[{"name": "rollout", "count": 1}])
        assert {one["spec"]["replicas"] for one in deployments(run)} == {1, 2}


def deployments(run: Scenario) -> list[Manifest]:
    found: list[Manifest] = json.loads(run.kubectl("get", "deployments", "-o", "json"))["items"]
    return found


def test_the_documented_delete_waits_until_the_trainer_has_stopped(kubernetes: ControlPlane, run: Scenario) -> None:
    (delete,) = set(re.findall(r"^\$ kubectl -n headrace (delete job trainer .*)$", TEXT, re.M))
    with kubernetes.fake_nodes(3):
        run.apply("cpu")
        run.wait_for_pods(CPU_PODS)
        (trainer,) = run.pods("trainer")
        run.annotate(trainer["metadata"]["name"], stop_seconds="5")
        run.kubectl(*delete.split())
        assert run.pods("trainer") == []
        run.apply("cpu")
        (successor,) = run.wait_for_pods(1, "trainer")
        assert successor["metadata"]["uid"] != trainer["metadata"]["uid"]
