"""Who has which token, certificate and URL, and who may write to the volume of the runs, in every overlay."""

import base64
import json
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from headrace.wire.access.certificates import SECRET, name_of, read_certificates
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED, read_access, read_token
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import CONFINED, RunPaths
from tests.integration.kubernetes.rendered import (
    ENCRYPTED,
    KUBERNETES,
    SHIPPED,
    Manifest,
    attempt_secrets,
    containers,
    kustomize,
    make_secrets,
    named,
    pods,
    render,
)
from tests.verbs import said

SERVICES = (Role.TRAINER, Role.ROLLOUT, Role.REWARD, Role.ENVIRONMENT, Role.ORCHESTRATOR)
PEOPLE = {Role.OPERATOR, Role.VIEWER, Role.ANNOTATOR}
COMPONENT = "app.kubernetes.io/component"
TOKENS, TLS, BROKER = "/run/secrets/tokens", "/run/secrets/tls", "/run/secrets/broker"


def overlay(folder: Path, below: str, *components: str) -> Path:
    """Writes an overlay as docs/kubernetes.md has its reader write it; its secrets are there."""
    (folder.parent / "deploy").symlink_to(KUBERNETES.parent)
    parts = [f"../deploy/kubernetes/components/{name}" for name in components]
    resources = [f"../deploy/kubernetes/overlays/{below}"]
    file = {"resources": resources, "components": [*parts, "secrets"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(file))
    return folder


@pytest.fixture
def over_tls(tmp_path: Path) -> Path:
    make_secrets(tmp_path / "my-run" / "secrets", "--tls")
    return overlay(tmp_path / "my-run", "cluster", "mutual-tls")


def encrypts(name: str) -> bool:
    """Whether a rendered overlay has one of the components."""
    return name in ENCRYPTED or name == "base+everything"


def secrets_of(spec: Manifest) -> dict[str, str]:
    """Volume -> its secret without the hash that kustomize adds; to those of certificates it adds none."""
    found = {one["name"]: one["secret"]["secretName"] for one in spec["volumes"] if "secret" in one}
    return {name: secret if secret.startswith("tls-") else secret.rpartition("-")[0] for name, secret in found.items()}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_pod_holds_only_the_secrets_of_its_own_role(name: str) -> None:
    for where, template in pods(render(name)):
        component = template["metadata"]["labels"][COMPONENT]
        wanted = {f"tls-{component}", f"token-{component}", "broker-url"} if component in SERVICES else set()
        if component == Role.ORCHESTRATOR:
            wanted.add("user-tokens")
        if component == "valkey":
            wanted = {"broker", *(["tls-broker"] if encrypts(name) else [])}
        found = set(secrets_of(template["spec"]).values())
        assert {one for one in found if one.partition("-")[0] in ("broker", "tls", "token", "user")} == wanted, where


@pytest.mark.parametrize("name", SHIPPED)
def test_a_service_finds_its_secrets_and_no_container_beside_it_finds_its_token(name: str) -> None:
    manifests = render(name)
    settings = named(manifests, "ConfigMap", "headrace")
    assert settings["data"].get("TLS") == (TLS if encrypts(name) else None)
    for where, spec, container, _ in containers(manifests):
        secrets, told = secrets_of(spec), {one["name"]: one for one in container.get("env", ())}
        mounts = {one["mountPath"]: one for one in container["volumeMounts"] if one["name"] in secrets}
        mounted = {place: (secrets[one["name"]], one.get("readOnly")) for place, one in mounts.items()}
        is_service, of = container["name"] in SERVICES, container["name"]
        assert is_service or not any("token" in secret for secret, _ in mounted.values()), where
        if not is_service and of != "prepare":
            continue
        # Nothing makes tokens in the run directory, `prepare` neither.
        assert told["HEADRACE_TOKENS"]["value"] == TOKENS, where
        assert told["HEADRACE_BROKER__URL_FILE"]["value"] == f"{BROKER}/url", where
        source = told["HEADRACE_TLS"]["valueFrom"]["configMapKeyRef"]
        assert source == {"name": settings["metadata"]["name"], "key": "TLS", "optional": True}, where
        role = Role.TRAINER if of == "prepare" else of
        assert mounted[BROKER] == ("broker-url", True) and mounted[TLS] == (f"tls-{role}", True), where
        assert mounted.get(TOKENS) == ((f"token-{of}", True) if is_service else None), where
        file = told.get("HEADRACE_OPERATOR_TOKEN_FILE", {}).get("value", "")
        people = [place for place, (secret, _) in mounted.items() if secret == "user-tokens"]
        assert [file] == ([f"{place}/{Role.OPERATOR}" for place in people] or [""]), where
        assert bool(people) == (of == Role.ORCHESTRATOR), where


@pytest.mark.parametrize("name", ENCRYPTED)
def test_no_port_of_grpc_or_the_broker_is_in_plain_text(name: str) -> None:
    manifests = render(name)
    for _, _, container, first in containers(manifests):
        if container["name"] == "valkey" and not first:
            (script,) = container["args"]
            assert " --port 0 --tls-port 6379 " in script
            probes = [container[f"{probe}Probe"] for probe in ("startup", "liveness", "readiness")]
            assert all("--tls" in json.dumps(probe["exec"]) and "tcpSocket" not in probe for probe in probes)
    ports = [port for one in manifests if one["kind"] == "Service" for port in one["spec"].get("ports", ())]
    told = {(port["name"], port.get("appProtocol")) for port in ports if port["name"] in ("grpc", "valkey")}
    assert told == {("grpc", "https"), ("valkey", None)}


@pytest.mark.parametrize("name", SHIPPED)
def test_services_that_run_user_code_can_write_only_their_event_logs(name: str) -> None:
    seen = set()
    for where, _, container, _ in containers(render(name)):
        service = container["name"]
        writable = [one for one in container["volumeMounts"] if one["name"] == "runs" and not one.get("readOnly")]
        if service not in CONFINED:
            continue
        seen.add(service)
        (own,) = writable
        assert own["subPathExpr"] == RunPaths(Path("$(RUN)")).own_events(service).as_posix(), where
        told = {one["name"]: one.get("value") for one in container["env"]}
        assert told["HEADRACE_EVENTS"] == own["mountPath"] and "RUN" in told, where
        assert {"name": "runs", "mountPath": "/runs", "readOnly": True} in container["volumeMounts"], where
    assert Role.REWARD in seen


def unpacked(manifests: tuple[Manifest, ...], secret: str, folder: Path) -> Path:
    """A secret as a pod sees it."""
    folder.mkdir()
    for key, value in named(manifests, "Secret", secret)["data"].items():
        (folder / key).write_bytes(base64.b64decode(value))
    return folder


@pytest.mark.parametrize("role", SERVICES)
def test_no_service_starts_with_the_secrets_of_the_base(role: Role, tmp_path: Path) -> None:
    manifests = render("cpu+mutual-tls")
    with pytest.raises(ConfigError, match=rf"{role} is empty: it must hold .*secrets\.sh"):
        read_access(unpacked(manifests, f"token-{role}", tmp_path / "token"), role)
    with pytest.raises(ConfigError, match=f"HEADRACE_TLS names a folder with ca.pem, {role}.pem"):
        read_certificates(unpacked(manifests, f"tls-{role}", tmp_path / "tls"), role)
    with pytest.raises(ConfigError, match="a token has 16 or more"):
        read_token(unpacked(manifests, "user-tokens", tmp_path / "user") / Role.OPERATOR, "key")


def test_the_script_makes_tokens_and_certificates_that_peers_accept(over_tls: Path, tmp_path: Path) -> None:
    manifests, made = kustomize(over_tls), over_tls / "secrets"
    user = unpacked(manifests, "user-tokens", tmp_path / "user")
    assert {path.name for path in user.iterdir()} == PEOPLE
    folders = {role: unpacked(manifests, f"token-{role}", tmp_path / role) for role in SERVICES}
    assert all({path.name for path in folder.iterdir()} == {role, ACCEPTED} for role, folder in folders.items())
    tokens = {role: (folders.get(role, user) / role).read_text() for role in Role}
    assert len(set(tokens.values())) == len(Role) and read_token(user / Role.OPERATOR, "key") == tokens[Role.OPERATOR]
    for role, folder in folders.items():
        access = read_access(folder, role)
        assert access.token == tokens[role]
        assert {one: access.roles_of(token) for one, token in tokens.items()} == {one: {one} for one in Role}
        certificate = unpacked(manifests, f"tls-{role}", tmp_path / f"tls-{role}")
        assert {path.name for path in certificate.iterdir()} == set(SECRET) and read_certificates(certificate, role)
    shown = x509.load_pem_x509_certificate((made / "certs/broker.pem").read_bytes())
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"valkey", "valkey.headrace.svc", "localhost"} <= set(names.get_values_for_type(x509.DNSName))
    password = (made / "broker/password").read_text()
    url = (unpacked(manifests, "broker-url", tmp_path / "url") / "url").read_text()
    assert url == f"rediss://:{password}@valkey:6379/0?ssl_ca_certs={TLS}/ca.crt"
    # Keys of people and of the authority stay where they were made.
    kept = [base64.b64encode((made / f"certs/{name}-key.pem").read_bytes()).decode() for name in (*PEOPLE, "ca")]
    assert not any(key in json.dumps(manifests) for key in kept)
    private = [path for path in (made, *made.rglob("*")) if path.parent.name != "certs" or "key" in path.name]
    assert {path.stat().st_mode & 0o077 for path in private} == {0}
    assert (made / ".gitignore").read_text() == "*\n"


def test_the_script_keeps_existing_secrets_and_recreates_a_removed_token(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder, "--tls")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    make_secrets(folder, "--tls")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    token = folder / "tokens" / Role.REWARD
    token.unlink()
    make_secrets(folder, "--tls")
    changed = {path.name for path, data in before.items() if path.read_bytes() != data}
    assert changed == {Role.REWARD, ACCEPTED}


def test_new_certificates_change_their_secrets_and_no_pod(over_tls: Path) -> None:
    def rendered() -> dict[tuple[str, str], Manifest]:
        return {(one["kind"], one["metadata"]["name"]): one for one in kustomize(over_tls)}

    before = rendered()
    said("certs", "rotate", "--tls", over_tls / "secrets/certs")
    make_secrets(over_tls / "secrets", "--tls")
    changed = {name for name, one in rendered().items() if before.get(name) != one}
    assert changed == {("Secret", f"tls-{name}") for name in (*SERVICES, "broker")}


@pytest.mark.parametrize("options", [("--tls", "demo"), ("--certs",), ("--tls", "--cert-manger"), ("--tls", "")])
def test_the_script_rejects_unknown_options(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = attempt_secrets(tmp_path / "secrets", *options)
    assert done.returncode == 2 and "usage: " in done.stderr and not (tmp_path / "secrets").exists()


def test_without_the_command_the_script_names_the_package(tmp_path: Path) -> None:
    done = attempt_secrets(tmp_path / "secrets", "--tls", path="/usr/bin:/bin")
    assert done.returncode == 2 and "pip install 'headrace[tls]'" in done.stderr
    assert not (tmp_path / "secrets").exists()


def test_cert_manager_issues_the_mounted_certificates_with_role_names(tmp_path: Path) -> None:
    make_secrets(tmp_path / "my-run/secrets", "--tls", "--cert-manager")
    assert not (tmp_path / "my-run/secrets/certs").exists()
    manifests = kustomize(overlay(tmp_path / "my-run", "cluster", "mutual-tls", "cert-manager"))
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
