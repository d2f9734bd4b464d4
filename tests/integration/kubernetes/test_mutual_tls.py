"""The components `mutual-tls` and `cert-manager`: who has which certificate and which user of the broker."""

import base64
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from headrace.wire.access.certificates import SECRET, name_of, read_certificates
from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError
from headrace.wire.streams.redis import GRANTS
from tests.integration.kubernetes.rendered import (
    ALL,
    ENCRYPTED,
    KUBERNETES,
    Manifest,
    attempt_secrets,
    containers,
    kustomize,
    make_secrets,
    named,
    pods,
    render,
)
from tests.integration.kubernetes.test_tokens import PEOPLE, SERVICES, secrets_of, unpacked
from tests.verbs import said

COMPONENT = "app.kubernetes.io/component"
TLS = "/run/secrets/tls"
BROKER = "/run/secrets/broker"


@pytest.fixture
def over_tls(tmp_path: Path) -> Path:
    """An overlay as docs/kubernetes.md has its reader make it, of the run `demo`."""
    (tmp_path / "deploy").symlink_to(KUBERNETES.parent)
    folder = tmp_path / "my-run"
    make_secrets(folder / "secrets", "--tls", "demo")
    write_overlay(folder, "cpu", "mutual-tls")
    return folder


def write_overlay(folder: Path, below: str, *components: str) -> None:
    parts = [f"../deploy/kubernetes/components/{name}" for name in components]
    file = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../deploy/kubernetes/overlays/{below}"],
        "components": [*parts, "secrets"],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(file))


def encrypts(name: str) -> bool:
    """Whether a rendered overlay has one of the components."""
    return name in ENCRYPTED or name == "base+everything"


@pytest.mark.parametrize("name", ALL)
def test_a_pod_has_the_secrets_of_its_own_role_and_no_other(name: str) -> None:
    for where, template in pods(render(name)):
        component = template["metadata"]["labels"][COMPONENT]
        wanted = {f"{kind}-{component}" for kind in ("broker", "tls", "token") if component in SERVICES}
        if component == Role.TRAINER:
            wanted.add("broker-operator")  # What `prepare` connects by.
        if component == Role.ORCHESTRATOR:
            wanted.add("user-tokens")
        if component == "valkey":
            wanted = {"broker", *(["tls-broker"] if encrypts(name) else [])}
        found = set(secrets_of(template["spec"]).values())
        assert {one for one in found if one.partition("-")[0] in ("broker", "tls", "token", "user")} == wanted, where


@pytest.mark.parametrize("name", ALL)
def test_each_container_mounts_what_its_role_needs_where_it_looks_for_it(name: str) -> None:
    manifests = render(name)
    given = named(manifests, "ConfigMap", "headrace")["data"].get("TLS")
    assert given == (TLS if encrypts(name) else None)
    seen = set()
    for where, spec, container, _ in containers(manifests):
        if container["name"] not in (*SERVICES, "prepare"):
            continue
        seen.add(container["name"])
        secrets = secrets_of(spec)
        mounted = {
            one["mountPath"]: (secrets.get(one["name"]), one.get("readOnly")) for one in container["volumeMounts"]
        }
        user = Role.OPERATOR if container["name"] == "prepare" else container["name"]
        of = "trainer" if container["name"] == "prepare" else container["name"]
        assert mounted[BROKER] == (f"broker-{user}", True) and mounted[TLS] == (f"tls-{of}", True), where
        told = {one["name"]: one for one in container["env"]}
        assert told["HEADRACE_BROKER__URL_FILE"]["value"] == f"{BROKER}/url"
        source = told["HEADRACE_TLS"]["valueFrom"]["configMapKeyRef"]
        assert (source["key"], source["optional"]) == ("TLS", True), where
        assert source["name"] == named(manifests, "ConfigMap", "headrace")["metadata"]["name"], where
    assert seen >= {"prepare", "trainer", "rollout", "reward", "orchestrator"}


@pytest.mark.parametrize("name", ENCRYPTED)
def test_no_port_of_grpc_or_the_broker_is_in_plain_text(name: str) -> None:
    manifests = render(name)
    for where, _, container, first in containers(manifests):
        if any(port["name"] == "grpc" for port in container.get("ports", ())):
            assert "HEADRACE_TLS" in {one["name"] for one in container["env"]}, where
        if container["name"] == "valkey" and not first:
            (script,) = container["args"]
            assert " --port 0 --tls-port 6379 " in script and "requirepass" not in script
            assert "--aclfile /run/secrets/broker/users.acl" in script
            probes = [container[f"{probe}Probe"] for probe in ("startup", "liveness", "readiness")]
            assert all("--tls" in json.dumps(probe["exec"]) and "tcpSocket" not in probe for probe in probes)
    ports = [port for one in manifests if one["kind"] == "Service" for port in one["spec"].get("ports", ())]
    told = {(port["name"], port.get("appProtocol")) for port in ports if port["name"] in ("grpc", "valkey")}
    assert told == {("grpc", "https"), ("valkey", None)}


def test_the_script_makes_certificates_that_peers_take_and_a_user_for_each_role(over_tls: Path, tmp_path: Path) -> None:
    manifests = kustomize(over_tls)
    passwords = set()
    for role in SERVICES:
        folder = unpacked(manifests, f"tls-{role}", tmp_path / f"tls-{role}")
        assert {path.name for path in folder.iterdir()} == set(SECRET)
        assert read_certificates(folder, role)
    for role in GRANTS:
        folder = unpacked(manifests, f"broker-{role}", tmp_path / f"url-{role}")
        url = urlsplit((folder / "url").read_text().strip())
        assert {path.name for path in folder.iterdir()} == {"url"}
        assert (url.scheme, url.username, url.hostname) == ("rediss", role, "valkey")
        assert url.query == f"ssl_ca_certs={TLS}/ca.crt"
        passwords.add(url.password or "")
    assert len(passwords) == len(GRANTS)
    broker = unpacked(manifests, "broker", tmp_path / "broker")
    assert {path.name for path in broker.iterdir()} == {"password", "users.acl"}
    acl = (broker / "users.acl").read_text()
    assert [line.split()[1] for line in acl.splitlines()] == ["default", *GRANTS, "admin", "keda"]
    assert "~headrace:{demo}:" in acl and not any(password in acl for password in passwords)
    # People keep theirs where they made them, and no pod has one.
    assert {path.name for path in unpacked(manifests, "user-tokens", tmp_path / "user").iterdir()} == PEOPLE
    certs = over_tls / "secrets" / "certs"
    assert all(read_certificates(certs, role) for role in PEOPLE)
    kept = [base64.b64encode((certs / f"{name}-key.pem").read_bytes()).decode() for name in (*PEOPLE, "ca")]
    assert not any(key in json.dumps(manifests) for key in kept)
    assert {path.stat().st_mode & 0o077 for path in (over_tls / "secrets").rglob("*") if "key" in path.name} == {0}


def test_new_certificates_change_their_secrets_and_no_pod_and_a_new_url_does(over_tls: Path) -> None:
    def rendered() -> dict[tuple[str, str], Manifest]:
        return {(one["kind"], one["metadata"]["name"]): one for one in kustomize(over_tls)}

    before = rendered()
    said("certs", "rotate", "--tls", over_tls / "secrets/certs")
    make_secrets(over_tls / "secrets", "--tls", "demo")
    after = rendered()
    changed = {name for name, one in after.items() if before.get(name) != one}
    assert changed == {("Secret", f"tls-{name}") for name in (*SERVICES, "broker")}
    (over_tls / "secrets/users/reward.url").unlink()
    make_secrets(over_tls / "secrets", "--tls", "demo")
    changed = {name for name, one in rendered().items() if after.get(name) != one}
    assert {kind for kind, _ in changed} == {"Secret", "Deployment", "StatefulSet"}
    assert {name for kind, name in changed if kind != "Secret"} == {"reward", "valkey"}


def test_the_script_keeps_what_is_there(over_tls: Path) -> None:
    secrets = over_tls / "secrets"
    before = {path: path.read_bytes() for path in secrets.rglob("*") if path.is_file()}
    make_secrets(secrets, "--tls", "demo")
    assert {path: path.read_bytes() for path in secrets.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (("--tls",), "usage: "),
        (("--tls", ""), "usage: "),
        (("--certs", "demo"), "usage: "),
        (("--tls", "demo", "--cert-manger"), "usage: "),
        (("--tls", "My run"), "run id 'My run' must be"),
    ],
)
def test_the_script_refuses_what_it_does_not_know(tmp_path: Path, options: tuple[str, ...], refusal: str) -> None:
    done = attempt_secrets(tmp_path / "secrets", *options)
    assert done.returncode != 0 and refusal in done.stderr + done.stdout
    assert not (tmp_path / "secrets/kustomization.yaml").exists()


def test_without_the_command_the_script_names_the_package(tmp_path: Path) -> None:
    done = attempt_secrets(tmp_path / "secrets", "--tls", "demo", path="/usr/bin:/bin")
    assert done.returncode == 2 and "pip install 'headrace[tls]'" in done.stderr
    assert not (tmp_path / "secrets").exists()


def test_without_the_component_its_secrets_are_not_rendered(over_tls: Path) -> None:
    write_overlay(over_tls, "cpu")
    with pytest.raises(AssertionError, match="tls-broker"):
        kustomize(over_tls)


@pytest.mark.parametrize("role", SERVICES)
def test_no_service_starts_with_the_certificates_of_the_base(role: Role, tmp_path: Path) -> None:
    folder = unpacked(render("cpu+mutual-tls"), f"tls-{role}", tmp_path / role)
    with pytest.raises(ConfigError, match=f"HEADRACE_TLS names a folder with ca.pem, {role}.pem"):
        read_certificates(folder, role)


def test_cert_manager_makes_what_pods_mount_and_names_roles(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(KUBERNETES.parent)
    make_secrets(tmp_path / "my-run/secrets", "--tls", "gsm8k-8b", "--cert-manager")
    assert not (tmp_path / "my-run/secrets/certs").exists()
    write_overlay(tmp_path / "my-run", "cluster", "mutual-tls", "cert-manager")
    manifests = kustomize(tmp_path / "my-run")
    made: dict[str, Manifest] = {
        one["spec"]["secretName"]: one["spec"] for one in manifests if one["kind"] == "Certificate"
    }
    secrets = {one["metadata"]["name"] for one in manifests if one["kind"] == "Secret"}
    assert not secrets & made.keys() and not any(name.startswith("tls-") for name in secrets)
    for role in SERVICES:
        assert made[f"tls-{role}"]["dnsNames"] == [name_of(role)]
        assert {"server auth", "client auth"} <= set(made[f"tls-{role}"]["usages"])
    assert {"valkey", "valkey.headrace.svc"} <= set(made["tls-broker"]["dnsNames"])
    assert not any(name_of(role) in made["tls-broker"]["dnsNames"] for role in Role)
    authority = made.pop("authority")
    assert authority["isCA"] is True and authority["issuerRef"]["name"] == "self-signed"
    issuers = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "Issuer"}
    assert issuers["authority"] == {"ca": {"secretName": "authority"}}
    assert {one["issuerRef"]["name"] for one in made.values()} == {"authority"}


def test_keda_is_a_user_of_the_broker_who_verifies_it(over_tls: Path) -> None:
    write_overlay(over_tls, "cluster", "mutual-tls")
    manifests = kustomize(over_tls)
    told = named(manifests, "TriggerAuthentication", "broker")["spec"]["secretTargetRef"]
    secrets = {one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "Secret"}
    values = {one["parameter"]: base64.b64decode(secrets[one["name"]][one["key"]]).decode() for one in told}
    assert (values["username"], values["tls"]) == ("keda", "enable")
    assert values["ca"] == (over_tls / "secrets/certs/ca.pem").read_text()
    assert values["password"] == (over_tls / "secrets/broker/keda").read_text()
