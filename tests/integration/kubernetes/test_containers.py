"""What holds of every container of every overlay."""

import re

import pytest

from tests.integration.kubernetes.rendered import ALL, ROOT, containers, pods, render

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
def test_every_image_is_pinned(name):
    for where, _, container, _ in containers(render(name)):
        assert PINNED.fullmatch(container["image"]), where


def test_kubernetes_and_compose_use_the_same_images():
    env = dict(line.split("=", 1) for line in (ROOT / ".env").read_text().splitlines() if re.match(r"[A-Z_]+=", line))
    tag, prefix = env["IMAGE_TAG"], env["IMAGE_PREFIX"]
    used = {
        container["image"].removeprefix("registry.example/team/")
        for name in ALL
        for _, _, container, _ in containers(render(name))
    }
    ours = {f"{prefix}{name}:{tag}" for name in ("orchestrator", "reward", "environment")}
    ours |= {f"{prefix}{name}:{tag}-{kind}" for name in ("rollout", "trainer") for kind in ("cpu", "gpu")}
    assert used == ours | {env["VALKEY_IMAGE"]}


@pytest.mark.parametrize("name", ALL)
def test_a_pod_has_time_to_drain_before_it_is_killed(name):
    for where, template in pods(render(name)):
        spec = template["spec"]
        assert spec["terminationGracePeriodSeconds"] >= 30, where
        for container in spec["containers"]:
            if container["name"] == "rollout":
                (wait,) = [part for part in container["lifecycle"]["preStop"]["exec"]["command"] if "seconds" in part]
                assert spec["terminationGracePeriodSeconds"] >= int(wait.partition("=")[2]) + 30
