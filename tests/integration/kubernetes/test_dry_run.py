"""A real API server takes every object of every overlay and component: nothing is left out, and it warns of nothing."""

from collections.abc import Iterator

import pytest

from tests.integration.kubernetes.control_plane import ControlPlane
from tests.integration.kubernetes.rendered import ALL, RUNS, Manifest, pods, render
from tests.integration.kubernetes.schemas import has_schema
from tests.integration.kubernetes.server import Server

GVISOR = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"}


@pytest.fixture(scope="module")
def server(kubernetes: ControlPlane) -> Iterator[Server]:
    """With what objects refer to at admission: namespace, accounts, priority and runtime class."""
    manifests = [one for name in ("base+everything", *RUNS) for one in render(name)]
    kinds = ("Namespace", "ServiceAccount", "PriorityClass")
    kubernetes.apply(GVISOR, *(one for kind in kinds for one in manifests if one["kind"] == kind))
    found = Server(kubernetes)
    yield found
    found.close()


@pytest.mark.parametrize("name", ALL)
def test_the_api_server_accepts_every_object(server: Server, name: str) -> None:
    refusals = [said for one in render(name) if has_schema(one) for said in server.refusals(one)]
    assert not refusals, "\n".join(refusals)


@pytest.mark.parametrize("name", ALL)
def test_the_namespace_admits_the_pods_of_every_template(server: Server, name: str) -> None:
    templates = list(pods(render(name)))
    assert len(templates) >= 4
    refusals = [said for where, template in templates for said in server.refusals(pod(where, template))]
    assert not refusals, "\n".join(refusals)


def pod(where: str, template: Manifest) -> Manifest:
    """As a controller makes it of the template: JobSet and LeaderWorkerSet have none here."""
    metadata = {**template.get("metadata", {}), "name": where.replace("/", "-").lower(), "namespace": "headrace"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
