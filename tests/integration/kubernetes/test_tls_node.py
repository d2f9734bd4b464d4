"""The overlay `cpu` over TLS in pods on a real node, with its NetworkPolicies enforced. In this order."""

import json
import os
import re
from collections.abc import Iterator

import pytest

from headrace.wire.access.certificates import SECRET
from tests.e2e.compose.engine import LOCAL_IMAGES, engine_images, need_engine
from tests.e2e.compose.inside import BROKER_WAYS, GRPC_WAYS, LIST
from tests.e2e.compose.project import Project
from tests.integration.kubernetes import control_plane
from tests.integration.kubernetes.real_node import denied_packets, joined, need_root
from tests.integration.kubernetes.scenario import Scenario
from tests.integration.kubernetes.test_real_node import BUILD_S, IMAGES, TAG, step, wait_for_policies, wait_for_step
from tests.verbs import said
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.e2e, pytest.mark.timeout(3000)]
TLS, URL = "/run/secrets/tls", "/run/secrets/broker/url"
READ_S = 240
"""Until kubelet shows a Secret's new content: its period is a minute, and its cache may be as old."""
LONG = [{"op": "add", "path": "/spec/template/spec/initContainers/0/args/-", "value": "--run.max-steps=100000"}]
BROKERS = """
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
with context.wrap_socket(socket.create_connection(("valkey", 6379), 20), server_hostname="valkey") as connection:
    print(ssl.cert_time_to_seconds(connection.getpeercert()["notAfter"]))
"""
"""Prints when the certificate that the broker shows expires."""
METRICS = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8080/metrics').read().decode())"


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scenario, str]]:
    """The scenario, and the folder of its overlay."""
    control_plane.need_kubernetes()
    need_root()
    need_engine()
    variables = engine_images()
    Project(f"headrace-pods-{os.getpid()}", "cpu", variables, tag=TAG).compose("build", seconds=BUILD_S)
    valkey = variables.get("VALKEY_IMAGE", "valkey/valkey:8.1.4")
    ours = [{"name": f"headrace-{name}", "newTag": tag} for name, tag in IMAGES.items()]
    images = [LOCAL_IMAGES["PYTHON_IMAGE"], valkey, *(f"{one['name']}:{one['newTag']}" for one in ours)]
    name, _, tag = valkey.partition(":")
    with control_plane.started() as plane, joined(plane, *images):
        made = Scenario(plane, "headrace", tmp_path_factory.mktemp("overlays"), tls="demo")
        overlay = made.overlay(
            "cpu",
            images=[*ours, {"name": "valkey/valkey", "newName": name, "newTag": tag}],
            # It must outlive these tests.
            patches=[{"target": {"kind": "Job", "name": "trainer"}, "patch": json.dumps(LONG)}],
        )
        made.kubectl("apply", "-k", str(overlay))
        wait_for_step(made, 2)
        yield made, str(overlay)


@pytest.fixture
def run(applied: tuple[Scenario, str]) -> Scenario:
    return applied[0]


def inside(run: Scenario, service: str, code: str, *arguments: str) -> str:
    (pod,) = run.ready(service)
    return run.kubectl("exec", pod["metadata"]["name"], "-c", service, "--", "python", "-I", "-c", code, *arguments)


def test_it_trains_and_nothing_that_it_needs_is_denied(run: Scenario) -> None:
    wait_for_policies(run)
    before = denied_packets()
    wait_for_step(run, step(run) + 3)
    assert denied_packets() == before
    logs = [run.kubectl("logs", pod["metadata"]["name"], "--all-containers") for pod in run.pods()]
    assert not any('"not_encrypted"' in log or "gRPC is not encrypted" in log for log in logs)
    tool = 'REDISCLI_AUTH="$(cat /run/secrets/broker/password)" valkey-cli --tls --cacert /run/secrets/tls/ca.crt'
    words = ("exec", "valkey-0", "--", "sh", "-c", f"{tool} --user admin ACL LOG")
    assert run.kubectl(*words).strip() == ""


def test_a_pod_has_the_certificate_of_its_own_role_and_its_own_url(run: Scenario) -> None:
    for service in ("orchestrator", "rollout", "reward", "trainer"):
        files = {path.rpartition("/")[2] for path in json.loads(inside(run, service, LIST, "/run/secrets"))}
        others = {"trainer", "rollout", "reward", "environment", "orchestrator"} - {service}
        assert {*SECRET, "url", service} <= files and not files & others, service
        assert not {"password", "users.acl", "ca-key.pem"} & files
        (pod,) = run.ready(service)
        words = ("exec", pod["metadata"]["name"], "-c", service, "--", "cat", URL)
        assert run.kubectl(*words).startswith(f"rediss://{service}:")


def test_grpc_refuses_clear_text_and_callers_without_a_certificate(run: Scenario) -> None:
    answers = json.loads(inside(run, "rollout", GRPC_WAYS, TLS, "orchestrator:7000"))
    assert answers == [["UNAVAILABLE", "UNAVAILABLE", "OK"]]


def test_the_broker_refuses_clear_text_and_the_anonymous(run: Scenario) -> None:
    clear, anonymous, ping, writes, reads = json.loads(inside(run, "reward", BROKER_WAYS, f"{TLS}/ca.crt", URL))
    assert "PONG" not in clear and anonymous.startswith("-NOAUTH") and ping == "True"
    assert "no permissions" in writes.lower() and "no permissions" in reads.lower()


def test_services_and_broker_read_new_certificates_without_a_restart(applied: tuple[Scenario, str]) -> None:
    run, overlay = applied

    def expires() -> float:
        text = inside(run, "orchestrator", METRICS)
        return float(re.findall(r"^headrace_certificate_expires_timestamp_seconds\S* (\S+)$", text, re.M)[0])

    def brokers() -> float:
        return float(inside(run, "orchestrator", BROKERS, f"{TLS}/ca.crt"))

    before, brokers_before = expires(), brokers()
    pods = {pod["metadata"]["uid"] for pod in run.pods()}
    said("certs", "rotate", "--tls", run.secrets / "certs", "--days", "500")
    run.make_secrets()
    run.kubectl("apply", "-k", overlay)
    until(lambda: expires() > before, "the new certificate to be read", seconds=READ_S, detail=run.shown, every_s=2.0)
    until(lambda: brokers() > brokers_before, "the broker to read its own", seconds=READ_S, every_s=2.0)
    wait_for_step(run, step(run) + 3)
    assert {pod["metadata"]["uid"] for pod in run.pods()} == pods
    assert not any(one["restartCount"] for pod in run.pods() for one in pod["status"]["containerStatuses"])
