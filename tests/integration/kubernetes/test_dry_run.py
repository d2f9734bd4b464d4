"""A real API server takes every object of every overlay and component: nothing is left out, and it warns of nothing."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.kubernetes.control_plane import ControlPlane
from tests.integration.kubernetes.rendered import ALL, Manifest, named, pods, render
from tests.integration.kubernetes.schemas import has_schema
from tests.integration.kubernetes.server import Server
from tests.integration.kubernetes.test_docs import YAML

OBJECTS = {
    "cpu": 48,
    "single-node-gpu": 50,
    "cluster": 64,
    "base+gpu": 49,
    "base+colocate": 48,
    "base+hub": 50,
    "base+jobset": 50,
    "base+leader-worker-set": 51,
    "base+keda": 52,
    "base+hpa": 50,
    "base+environment": 55,
    "base+environment-keda": 60,
    "base+environment-sandbox": 55,
    "base+reward-sandbox": 48,
    "base+kueue": 48,
    "base+monitoring": 52,
    "base+grafana": 50,
    "base+sandbox-gvisor": 48,
    "base+tls": 50,
    "base+everything": 70,
    # One Secret more; and six Certificates, an authority of three objects, in place of six Secrets.
    "base+mutual-tls": 49,
    "base+cert-manager": 52,
    "cpu+mutual-tls": 49,
    "cpu+cert-manager": 52,
    "single-node-gpu+mutual-tls": 51,
    "single-node-gpu+cert-manager": 54,
    "cluster+mutual-tls": 65,
    "cluster+cert-manager": 68,
}
"""How many objects each has."""
NO_SCHEMA = {"LocalQueue"}
"""Kinds of docs/kubernetes.md that no CRD of HEADRACE_SCHEMAS describes."""
GVISOR = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"}


@pytest.fixture(scope="module")
def server(kubernetes: ControlPlane) -> Iterator[Server]:
    """With what objects refer to at admission: namespace, accounts, priority and runtime class."""
    manifests = render("base+everything")
    kinds = ("Namespace", "ServiceAccount", "PriorityClass")
    kubernetes.apply(GVISOR, *(one for kind in kinds for one in manifests if one["kind"] == kind))
    found = Server(kubernetes)
    yield found
    found.close()


def test_kinds_without_a_schema_are_left_out_aloud() -> None:
    left = {one["kind"] for name in OBJECTS for one in render(name) if not has_schema(one)}
    if left:
        pytest.skip(f"no CRD here of {', '.join(sorted(left))}: the server is not asked about these")


@pytest.mark.parametrize("name", ALL)
def test_the_server_takes_every_object(server: Server, name: str) -> None:
    manifests = render(name)
    assert len(manifests) == OBJECTS[name]
    refusals = [said for one in manifests if has_schema(one) for said in server.refusals(one)]
    assert not refusals, "\n".join(refusals)


@pytest.mark.parametrize("name", ALL)
def test_the_namespace_admits_the_pods_of_every_template(server: Server, name: str) -> None:
    templates = list(pods(render(name)))
    assert len(templates) >= 5
    refusals = [said for where, template in templates for said in server.refusals(pod(where, template))]
    assert not refusals, "\n".join(refusals)


def pod(where: str, template: Manifest) -> Manifest:
    """As a controller makes it of the template: JobSet and LeaderWorkerSet have none here."""
    metadata = {**template.get("metadata", {}), "name": where.replace("/", "-").lower(), "namespace": "headrace"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_it_refuses_what_a_cluster_would_refuse(server: Server) -> None:
    deployment = copy.deepcopy(named(render("cpu"), "Deployment", "rollout"))
    deployment["spec"]["replica"] = 2
    assert "replica: field not declared" in server.refusals(deployment)[0]
    jobset = copy.deepcopy(named(render("cluster"), "JobSet", "trainer"))
    jobset["spec"]["replicas"] = 2
    assert "replicas: field not declared" in server.refusals(jobset)[0]
    where, template = next(pods(render("cpu")))
    root = copy.deepcopy(template)
    root["spec"]["securityContext"]["runAsNonRoot"] = False
    assert "violates PodSecurity" in server.refusals(pod(where, root))[0]
    privileged = copy.deepcopy(named(render("cpu"), "StatefulSet", "orchestrator"))
    privileged["spec"]["template"]["spec"]["hostNetwork"] = True
    assert "would violate PodSecurity" in server.refusals(privileged)[0]


@pytest.mark.parametrize("profile", ["seccompProfile", "appArmorProfile"])
def test_the_namespace_admits_named_profiles_and_refuses_unconfined(server: Server, profile: str) -> None:
    (template,) = [one for where, one in pods(render("base+reward-sandbox")) if where == "Deployment/reward"]
    for value, admitted in (({"type": "Localhost", "localhostProfile": "mine"}, True), ({"type": "Unconfined"}, False)):
        held = copy.deepcopy(template)
        held["spec"]["securityContext"][profile] = value
        refusals = server.refusals(pod("Deployment/reward", held))
        assert not refusals if admitted else "violates PodSecurity" in refusals[0], refusals


def test_kubectl_applies_the_overlay_of_the_walk(kubernetes: ControlPlane, server: Server, my_run: Path) -> None:
    (my_run / "kustomization.yaml").write_text(YAML[0])
    done = kubernetes.attempt("apply", "--dry-run=server", "-k", str(my_run))
    assert done.returncode == 0 and "arning" not in done.stderr, done.stderr
    assert len(done.stdout.splitlines()) == OBJECTS["cpu"]


def test_what_has_no_schema_here_is_listed(server: Server) -> None:
    shown = [one for text in YAML for one in yaml.safe_load_all(text) if "apiVersion" in one]
    objects = [one for one in shown if one["kind"] != "Kustomization"]
    assert {one["kind"] for one in objects} == NO_SCHEMA
    assert all("the server knows no" in server.refusals(one)[0] for one in objects)
