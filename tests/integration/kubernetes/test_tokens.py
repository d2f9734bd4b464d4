"""Who has which token, and who may write to the volume of the runs, in every overlay and component."""

import base64
from pathlib import Path

import pytest

from headrace.services.orchestrator.http.operator_token import read_token
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED, read_access
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import CONFINED, RunPaths
from tests.integration.kubernetes.rendered import (
    ALL,
    Manifest,
    containers,
    kustomize,
    make_secrets,
    named,
    pods,
    render,
)

SERVICES = (Role.TRAINER, Role.ROLLOUT, Role.REWARD, Role.ENVIRONMENT, Role.ORCHESTRATOR)
PEOPLE = {Role.OPERATOR, Role.VIEWER, Role.ANNOTATOR}
TOKENS = "/run/secrets/tokens"
KUSTOMIZATION = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../deploy/kubernetes/overlays/cpu]
components: [secrets]
"""


def secrets_of(spec: Manifest) -> dict[str, str]:
    """Volume -> its secret without the hash that kustomize adds; to those of certificates it adds none."""
    found = {one["name"]: one["secret"]["secretName"] for one in spec["volumes"] if "secret" in one}
    return {name: secret if secret.startswith("tls-") else secret.rpartition("-")[0] for name, secret in found.items()}


@pytest.mark.parametrize("name", ALL)
def test_a_pod_has_the_token_of_its_own_role_and_no_other(name: str) -> None:
    for where, template in pods(render(name)):
        component = template["metadata"]["labels"]["app.kubernetes.io/component"]
        found = {secret for secret in secrets_of(template["spec"]).values() if "token" in secret}
        own = {f"token-{component}"} if component in SERVICES else set()
        assert found == own | ({"user-tokens"} if component == "orchestrator" else set()), where


@pytest.mark.parametrize("name", ALL)
def test_a_service_finds_its_token_and_no_container_beside_it_does(name: str) -> None:
    for where, spec, container, _ in containers(render(name)):
        secrets = secrets_of(spec)
        tokens = {name for name, secret in secrets.items() if "token" in secret}
        mounted = {one["mountPath"]: one for one in container["volumeMounts"] if one["name"] in tokens}
        told = {one["name"]: one.get("value") for one in container.get("env", ())}
        if container["name"] not in SERVICES:
            assert not mounted, where
            continue
        assert told["HEADRACE_TOKENS"] == TOKENS and mounted[TOKENS]["readOnly"] is True, where
        assert secrets[mounted.pop(TOKENS)["name"]] == f"token-{container['name']}", where
        file = told.get("HEADRACE_OPERATOR_TOKEN_FILE")
        assert (file is not None) == (container["name"] == Role.ORCHESTRATOR) == bool(mounted), where
        assert not file or file == f"{next(iter(mounted))}/{Role.OPERATOR}", where


def test_what_prepares_the_run_makes_no_tokens_beside_the_secrets() -> None:
    told = [one["env"] for _, _, one, _ in containers(render("cpu")) if one["name"] == "prepare"]
    assert told and all({"name": "HEADRACE_TOKENS", "value": TOKENS} in one for one in told)


@pytest.mark.parametrize("name", ALL)
def test_what_runs_code_of_others_writes_to_its_event_logs_alone(name: str) -> None:
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
def test_no_service_starts_with_the_token_of_the_base(role: Role, tmp_path: Path) -> None:
    folder = unpacked(render("cpu"), f"token-{role}", tmp_path / role)
    with pytest.raises(ConfigError, match=rf"{role} is empty: it must hold .*secrets\.sh"):
        read_access(folder, role)


def test_the_operators_token_of_the_base_is_refused(tmp_path: Path) -> None:
    folder = unpacked(render("cpu"), "user-tokens", tmp_path / "user")
    with pytest.raises(ConfigError, match="a token has 16 or more"):
        read_token(folder / Role.OPERATOR)


def test_the_script_makes_a_token_for_each_role_which_the_services_accept(my_run: Path, tmp_path: Path) -> None:
    (my_run / "kustomization.yaml").write_text(KUSTOMIZATION)
    manifests = kustomize(my_run)
    user = unpacked(manifests, "user-tokens", tmp_path / "user")
    assert {path.name for path in user.iterdir()} == PEOPLE
    folders = {role: unpacked(manifests, f"token-{role}", tmp_path / role) for role in SERVICES}
    assert all({path.name for path in folder.iterdir()} == {role, ACCEPTED} for role, folder in folders.items())
    tokens = {role: (folders.get(role, user) / role).read_text() for role in Role}
    assert len(set(tokens.values())) == len(Role)
    for role, folder in folders.items():
        access = read_access(folder, role)
        assert access.token == tokens[role]
        assert {one: access.roles_of(token) for one, token in tokens.items()} == {one: {one} for one in Role}
    assert read_token(user / Role.OPERATOR) == tokens[Role.OPERATOR]
    made = my_run / "secrets"
    assert {path.stat().st_mode & 0o077 for path in (made, *made.rglob("*"))} == {0}
    assert (made / ".gitignore").read_text() == "*\n"


def test_the_script_keeps_what_is_there_and_makes_a_removed_token_anew(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    make_secrets(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    token = folder / "tokens" / Role.REWARD
    token.unlink()
    make_secrets(folder)
    changed = {path.name for path, data in before.items() if path.read_bytes() != data}
    assert changed == {Role.REWARD, ACCEPTED}
