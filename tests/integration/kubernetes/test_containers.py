"""What holds of every container of every overlay."""

import re

import pytest

from tests.integration.kubernetes.rendered import ALL, KUBERNETES, ROOT, containers, pods, render

PINNED = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+[a-z0-9.-]*|[a-z0-9./-]+@sha256:[0-9a-f]{64}")


@pytest.mark.parametrize("name", ALL)
def test_no_container_has_more_rights_than_it_needs(name):
    for where, spec, container, _ in containers(render(name)):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, where
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == 10001
        assert spec["securityContext"]["seccompProfile"] == seccomp(name, where), where
        assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & spec.keys()
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]


def seccomp(name, where):
    """Where children run in bubblewrap, the profile of deploy/compose; else what the container's runtime has."""
    service = where.split("/")[1]
    if service in ("environment", "reward") and name in (f"base+{service}-sandbox", "base+everything"):
        return {"type": "Localhost", "localhostProfile": "headrace/seccomp-sandbox.json"}
    return {"type": "RuntimeDefault"}


@pytest.mark.parametrize("name", ALL)
def test_every_container_says_what_it_needs_and_at_most_takes(name):
    for where, _, container, _ in containers(render(name)):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), where
        assert "memory" in resources["limits"], where
        gpus = "nvidia.com/gpu"
        assert resources["requests"].get(gpus) == resources["limits"].get(gpus), where
    for where, template in pods(render(name)):
        empty = [volume["emptyDir"] for volume in template["spec"]["volumes"] if "emptyDir" in volume]
        assert all("sizeLimit" in volume for volume in empty), where


@pytest.mark.parametrize("name", ALL)
def test_every_image_is_pinned(name):
    for where, _, container, _ in containers(render(name)):
        assert PINNED.fullmatch(container["image"]), where


def test_images_are_those_of_compose():
    env = dict(line.split("=", 1) for line in (ROOT / ".env").read_text().splitlines() if re.match(r"[A-Z_]+=", line))
    tag, prefix = env["IMAGE_TAG"], env["IMAGE_PREFIX"]
    used = {container["image"] for name in ALL for _, _, container, _ in containers(render(name))}
    ours = {f"{prefix}{name}:{tag}" for name in ("orchestrator", "reward", "environment")}
    ours |= {f"{prefix}{name}:{tag}-{kind}" for name in ("rollout", "trainer") for kind in ("cpu", "gpu")}
    assert used == ours | {env["VALKEY_IMAGE"]}


@pytest.mark.parametrize("name", ALL)
def test_every_container_that_stays_has_three_probes(name):
    for where, _, container, first in containers(render(name)):
        probes = {"startupProbe", "livenessProbe", "readinessProbe"}
        assert (probes & container.keys()) == (set() if first else probes), where
        asked = [container[probe] for probe in sorted(probes & container.keys())]
        assert not [probe for probe in asked if "grpc" in probe], f"{where}: kubelet has no certificate to show"
        if container["command"][:3] == ["python", "-P", "-m"] and not first:
            # A service that cannot do its work is not helped by a restart.
            paths = [probe["httpGet"] for probe in asked]
            assert paths == [{"port": "http", "path": f"/{path}"} for path in ("healthz", "readyz", "healthz")], where


@pytest.mark.parametrize("name", ALL)
def test_a_pod_has_time_to_drain_before_it_is_killed(name):
    for where, template in pods(render(name)):
        spec = template["spec"]
        assert spec["terminationGracePeriodSeconds"] >= 30, where
        for container in spec["containers"]:
            if container["name"] == "rollout":
                (wait,) = [part for part in container["lifecycle"]["preStop"]["exec"]["command"] if "seconds" in part]
                assert spec["terminationGracePeriodSeconds"] >= int(wait.partition("=")[2]) + 30


@pytest.mark.parametrize("name", ALL)
def test_namespaces_admit_what_is_in_them(name):
    (namespace,) = [one for one in render(name) if one["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_nothing_names_a_port_of_the_host_or_opens_a_service_to_the_world():
    for name in ALL:
        for one in render(name):
            if one["kind"] == "Service":
                assert one["spec"].get("type", "ClusterIP") == "ClusterIP", one["metadata"]["name"]
        for where, _, container, _ in containers(render(name)):
            assert not [port for port in container.get("ports", ()) if "hostPort" in port], where


def test_the_example_password_is_the_same_everywhere_it_stands():
    folder = KUBERNETES / "base" / "broker"
    password = (folder / "password").read_text()
    assert (folder / "url").read_text() == f"redis://:{password}@valkey:6379/0"
