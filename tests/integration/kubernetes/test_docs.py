"""What docs/kubernetes.md tells to write is rendered here, as it stands there."""

import base64
import re

import pytest

from tests.integration.kubernetes.rendered import (
    COMPONENTS,
    KUBERNETES,
    ROOT,
    containers,
    kustomize,
    make_secrets,
    named,
    pods,
    render,
)
from tests.integration.kubernetes.schemas import check_own

TEXT = (ROOT / "docs" / "kubernetes.md").read_text()
YAML = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.M | re.S)


def test_the_overlay_of_the_walk_takes_your_secret_and_your_images(my_run):
    (my_run / "kustomization.yaml").write_text(YAML[0])
    manifests = kustomize(my_run)
    made = (my_run / "secrets" / "broker" / "password").read_bytes()
    assert base64.b64decode(named(manifests, "Secret", "broker")["data"]["password"]) == made
    ours = [c["image"] for _, _, c, _ in containers(manifests) if "headrace" in c["image"]]
    assert ours and all(image.startswith("registry.example.com/headrace-") for image in ours)
    for manifest in manifests:
        check_own(manifest)


def test_your_run_takes_the_place_of_the_examples(my_run):
    (my_run / "kustomization.yaml").write_text(YAML[0].replace("overlays/cpu", "overlays/single-node-gpu") + YAML[1])
    manifests = kustomize(my_run)
    assert named(manifests, "ConfigMap", "headrace")["data"]["RUN"] == "my-first"
    assert named(manifests, "ConfigMap", "run-file")["data"].keys() == {"run.toml", "rewards.py"}
    used = [
        volume["configMap"]["name"]
        for volume in named(manifests, "Deployment", "reward")["spec"]["template"]["spec"]["volumes"]
        if "configMap" in volume
    ]
    assert used == [named(manifests, "ConfigMap", "run-file")["metadata"]["name"]]


def test_another_number_of_nodes_is_the_same_everywhere(my_run):
    (patch,) = [text for text in YAML if "/parallelism" in text]
    (my_run / "kustomization.yaml").write_text(YAML[0].replace("overlays/cpu", "overlays/cluster") + patch)
    (replicated,) = named(kustomize(my_run), "JobSet", "trainer")["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    (prepare,) = [one for one in job["template"]["spec"]["initContainers"] if one["name"] == "prepare"]
    told = {one["name"]: one.get("value") for one in prepare["env"]}
    assert (job["parallelism"], job["completions"], told["NODES"]) == (4, 4, "4")


def test_the_components_of_episodes_join_an_overlay_of_one_node(my_run):
    (components,) = [text for text in YAML if "components/environment\n" in text]
    (my_run / "kustomization.yaml").write_text(YAML[0] + components)
    manifests = kustomize(my_run)
    spec = named(manifests, "Deployment", "environment")["spec"]["template"]["spec"]
    assert spec["affinity"] == named(manifests, "Deployment", "rollout")["spec"]["template"]["spec"]["affinity"]
    assert spec["securityContext"]["seccompProfile"]["type"] == "Localhost"
    budgets = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "PodDisruptionBudget"}
    assert {one["maxUnavailable"] for one in budgets.values()} == {"100%"} and "environment" in budgets


@pytest.mark.parametrize("overlay", ["cpu", "single-node-gpu", "cluster"])
def test_the_components_of_tls_stand_above_any_overlay(my_run, overlay):
    own, of_cert_manager = [text for text in YAML if "components/mutual-tls\n" in text]
    lines = dict.fromkeys(re.findall(r"^\$ deploy/kubernetes/secrets\.sh (.* --tls\b.*)$", TEXT, re.M))
    (first, *options), (second, *more) = [line.split() for line in lines]
    assert first == second == "my-run/secrets"
    for components, given in ((own, options), (of_cert_manager, more)):
        make_secrets(my_run / "secrets", *given)
        (my_run / "kustomization.yaml").write_text(
            YAML[0].replace("overlays/cpu", f"overlays/{overlay}").replace("components: [secrets]\n", components)
        )
        manifests = kustomize(my_run)
        assert named(manifests, "ConfigMap", "headrace")["data"]["TLS"] == "/run/secrets/tls"
        made = [one for one in manifests if one["kind"] == "Certificate"]
        assert bool(made) == (components == of_cert_manager)


def test_the_patch_names_the_apparmor_profile(my_run):
    (components,) = [text for text in YAML if "components/environment\n" in text]
    (patch,) = [text for text in YAML if "appArmorProfile" in text]
    (my_run / "kustomization.yaml").write_text(YAML[0] + components + patch)
    manifests = kustomize(my_run)
    for name, profile in (
        ("environment", {"type": "Localhost", "localhostProfile": "headrace-sandbox"}),
        ("reward", None),
    ):
        held = named(manifests, "Deployment", name)["spec"]["template"]["spec"]["securityContext"]
        assert held.get("appArmorProfile") == profile


def test_every_component_and_overlay_is_told_of():
    told = set(re.findall(r"`([a-z-]+)`", TEXT))
    assert COMPONENTS.keys() - {"everything"} <= told
    assert {path.name for path in (KUBERNETES / "overlays").iterdir()} <= set(re.findall(r"overlays/([a-z-]+)", TEXT))


def test_what_needs_a_cluster_is_marked_as_such():
    for block in re.findall(r"^```bash\n(.*?)^```", TEXT, re.M | re.S):
        assert all(line.startswith("kubectl kustomize ") for line in block.splitlines())


def test_the_page_names_what_the_demo_requests():
    found = re.search(r"overlay `cpu` requests ([\d.]+) CPUs and ([\d.]+) GiB", TEXT)
    requested = [of_pod(template["spec"]) for _, template in pods(render("cpu"))]
    cpu, memory = (sum(one[index] for one in requested) for index in (0, 1))
    assert (cpu, memory) == pytest.approx((float(found[1]), float(found[2])))
    assert not [one for one in render("cpu") if one["kind"] == "Deployment" and "replicas" in one["spec"]]


def of_pod(spec):
    """What the scheduler counts: init containers run one by one before the others, which run together."""
    first = [amounts(one["resources"]["requests"]) for one in spec.get("initContainers", ())]
    together = [amounts(one["resources"]["requests"]) for one in spec["containers"]]
    return [max(sum(one[index] for one in together), *(one[index] for one in first), 0) for index in (0, 1)]


def amounts(requests):
    """CPUs, and GiB of memory."""
    cpu, memory = requests["cpu"], requests["memory"]
    gib = {"Mi": 1 / 1024, "Gi": 1}[memory[-2:]] * int(memory[:-2])
    return int(cpu[:-1]) / 1000 if str(cpu).endswith("m") else float(cpu), gib
