"""docker-compose.yml and .env as files: what starts in which profile, and how each service is held."""

import json
import os
import re
from itertools import chain, combinations
from pathlib import Path

import pytest

from headrace.wire.rundir.layout import CONFINED
from tests.e2e.compose.engine import need_engine
from tests.e2e.compose.project import Project
from tests.e2e.compose.resolved import ROOT, parse, variables

PROFILES = ("cpu", "gpu", "observability")
COMBINATIONS = list(chain.from_iterable(combinations(PROFILES, count) for count in range(1, len(PROFILES) + 1)))
COMBINATIONS += [(name, "environment") for name in PROFILES[:2]]
SANDBOX = ["seccomp=deploy/compose/seccomp-sandbox.json", f"apparmor={variables()['SANDBOX_APPARMOR']}"]
"""What bubblewrap needs, where programs of others run in it."""
ONCE = {"setup", "prepare", "prepare-cpu"}
"""They end before the others start."""


SERVICES = parse()


def started(profiles: set[str]) -> set[str]:
    return {name for name, one in SERVICES.items() if profiles & set(one["profiles"])}


def test_each_profile_starts_exactly_its_services() -> None:
    shared = {"setup", "valkey", "reward", "prometheus"}
    cpu = {f"{name}-cpu" for name in ("prepare", "orchestrator", "rollout", "trainer")}
    gpu = {"prepare", "orchestrator", "rollout", "trainer", "dcgm-exporter"}
    assert started({"cpu"}) == shared | cpu
    assert started({"gpu"}) == shared | gpu
    assert started({"environment"}) == {"environment"}, "a run that plays nothing starts none"
    assert started({"observability"}) == {"setup", "prometheus", "grafana"}
    assert variables()["COMPOSE_PROFILES"] == "gpu,observability"


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_confined_and_limited(name: str) -> None:
    one = SERVICES[name]
    own = {"reward": 10002, "environment": 10003}.get(name, 10001)
    assert one["user"] == f"{own}:{own}"
    assert one["read_only"] is True and one["init"] is True
    assert one["cap_drop"] == ["ALL"] and "cap_add" not in one
    assert one["security_opt"] == ["no-new-privileges:true", *(SANDBOX if name == "environment" else [])]
    assert "privileged" not in one and one.get("network_mode", "none") == "none"
    assert not {"pid", "ipc", "userns_mode", "devices"} & one.keys()
    assert one["tmpfs"]
    limits = one["deploy"]["resources"]["limits"]
    assert limits["memory"] and limits["pids"]
    assert one["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_a_health_check_with_a_start_period_and_a_restart_policy(name: str) -> None:
    one = SERVICES[name]
    if name in ONCE:
        assert one["restart"] == "no" and one["healthcheck"] == {"disable": True}
        return
    assert one["healthcheck"]["start_period"]
    assert "test" in one["healthcheck"] or "build" in one, "the image has the check"
    assert one["stop_grace_period"]
    assert one["restart"] in ("unless-stopped", "on-failure:10")


def test_only_the_dashboards_are_published_and_on_loopback() -> None:
    ports = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    own = ["127.0.0.1:8080:8080"]
    assert ports == {"orchestrator": own, "orchestrator-cpu": own, "grafana": ["127.0.0.1:3000:3000"]}


@pytest.mark.parametrize("file", sorted((ROOT / "deploy/docker").glob("*.Dockerfile")), ids=lambda path: path.name)
def test_each_dockerfile_uses_the_pins_in_env(file: Path) -> None:
    for name, value in re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", file.read_text(), re.MULTILINE):
        assert variables()[name] == value


def test_only_the_gpu_profile_takes_gpus_and_its_replicas_share_them_out() -> None:
    for name in ("trainer", "rollout"):
        assert SERVICES[name]["shm_size"] == variables()["SHM"]
    assert "gpus.py" in SERVICES["rollout"]["entrypoint"]
    assert {name for name, one in SERVICES.items() if "extends" in one} == {"prepare", "trainer", "rollout"}
    assert not any(
        "reservations" in one["deploy"]["resources"] for one in SERVICES.values() if "cpu" in one["profiles"]
    )


@pytest.mark.parametrize(
    "name", sorted(name for name, one in SERVICES.items() if "HEADRACE_RUN_DIR" in one.get("environment", ()))
)
def test_homes_and_caches_are_on_mounts_that_can_be_written_to(name: str) -> None:
    one = SERVICES[name]
    (file, target) = (ROOT / one["build"]["dockerfile"], one["build"]["target"])
    stage = re.split(r"^FROM ", file.read_text(), flags=re.MULTILINE)
    (home,) = [
        found for part in stage if f" AS {target}\n" in part for found in re.findall(r"^ENV HOME=(\S+)", part, re.M)
    ]
    mounts = [volume.split(":")[1] for volume in one["volumes"] if not volume.endswith(":ro")]
    mounts += [tmpfs.partition(":")[0] for tmpfs in one["tmpfs"]]
    for folder in (home, one["environment"]["HF_HOME"]):
        assert any(Path(folder).is_relative_to(mount) for mount in mounts), f"{folder}: none of {mounts}"


def test_the_documented_end_takes_down_every_profile() -> None:
    lines = (ROOT / "docs" / "compose.md").read_text().splitlines()
    assert "docker compose --profile '*' down --volumes" in lines
    need_engine()
    named = Project("headrace-config", "", {}).compose("--profile", "*", "config", "--services").split()
    assert set(named) == SERVICES.keys()


def test_secrets_are_files_and_never_environment_variables() -> None:
    for name, one in SERVICES.items():
        environment = one.get("environment", {})
        shown = {key: value for key, value in environment.items() if re.search(r"PASSWORD|TOKEN|SECRET|URL", key)}
        # Files and folders.
        assert all(
            re.search("_(FILE|PATH|TOKENS)$", key) and str(value).startswith("/run/") for key, value in shown.items()
        ), name
    mounted = {name: {str(volume) for volume in one.get("volumes", ())} for name, one in SERVICES.items()}
    who = {name for name, volumes in mounted.items() if any("grafana-secret" in volume for volume in volumes)}
    assert who == {"setup", "grafana"}
    writers = {name for name, volumes in mounted.items() if any(re.match(r"\w+-secret:[^:]+$", v) for v in volumes)}
    assert writers == {"setup"}


def test_a_service_mounts_only_the_token_of_its_own_role() -> None:
    made: dict[str, str] = {}
    owners: dict[tuple[str, str], set[str]] = {}
    for name, one in SERVICES.items():
        mounted = [str(volume).split(":") for volume in one.get("volumes", ())]
        for source, target, *options in [volume for volume in mounted if len(volume) > 1 and "token" in volume[1]]:
            if name == "setup":
                made[source] = target
                continue
            assert options == ["ro"], name
            owners.setdefault((source, target), set()).add(name)
    roles = {"trainer", "rollout", "reward", "environment", "orchestrator"}
    assert made == {f"{role}-secret": f"/state/tokens/{role}" for role in (*roles, "user")}
    both = {"orchestrator", "orchestrator-cpu"}
    own = {role: {name for name in SERVICES if name.partition("-")[0] == role} for role in roles}
    wanted = {(f"{role}-secret", "/run/tokens"): names for role, names in own.items()}
    assert owners == {**wanted, ("user-secret", "/run/user-tokens"): both}
    file = variables()["OPERATOR_TOKEN_FILE"]
    asked = {name: one.get("environment", {}).get("HEADRACE_OPERATOR_TOKEN_FILE") for name, one in SERVICES.items()}
    assert {name for name, value in asked.items() if value == file} == both
    assert set(asked.values()) == {file, None} and file == "/run/user-tokens/operator"


def test_services_that_run_user_code_have_separate_users_and_groups() -> None:
    users = {name: one["user"] for name, one in SERVICES.items()}
    own = {name: user for name, user in users.items() if not user.startswith("10001:")}
    assert own.keys() == set(CONFINED) and len(set(own.values())) == len(own)
    groups = [f"{name}={user.partition(':')[2]}" for name, user in sorted(own.items(), reverse=True)]
    for name in ONCE:
        words = SERVICES[name]["command" if name == "setup" else "entrypoint"]
        assert [word for word in words if "=" in word] == groups, name
        assert SERVICES[name]["group_add"] == [group.partition("=")[2] for group in groups], name
    # The group of the runs: they read, and the mode of what is there lets no member write.
    assert {tuple(SERVICES[name]["group_add"]) for name in own} == {(variables()["RUNS_GID"],)}
    assert {user.partition(":")[2] for name, user in users.items() if name not in own} == {variables()["RUNS_GID"]}


def test_the_trainers_second_node_has_the_limits_of_the_first() -> None:
    need_engine()
    files = ("--file", "docker-compose.yml", "--file", "deploy/compose/nodes.yml")
    resolved = Project("headrace-config", "cpu", {}).compose(*files, "config", "--format", "json")
    services = json.loads(resolved)["services"]
    assert set(services) == started({"cpu"}) | {"trainer-node"}
    first, second = services["trainer-cpu"], services["trainer-node"]
    told = [
        {name: one["environment"].pop(f"HEADRACE_{name}") for name in ("NODE", "RENDEZVOUS")} for one in (first, second)
    ]
    assert told == [{"NODE": node, "RENDEZVOUS": "trainer-cpu:29500"} for node in ("0", "1")]
    assert first.pop("container_name") != second.pop("container_name")
    assert first == second
    words = services["prepare-cpu"]["command"]
    assert words == ["--demo", "--trainer.nodes", "2", "--trainer.ranks", "2"]


@pytest.mark.parametrize("profiles", COMBINATIONS, ids="+".join)
def test_compose_resolves_every_combination_and_the_schema_takes_it(profiles: tuple[str, ...]) -> None:
    need_engine()
    project = Project("headrace-config", ",".join(profiles), {})
    resolved = json.loads(project.compose("config", "--format", "json"))
    assert set(resolved["services"]) == started(set(profiles))
    folder = os.environ.get("HEADRACE_SCHEMAS")
    if not folder:
        pytest.skip("HEADRACE_SCHEMAS names no folder with compose-spec.json: validated by Compose alone")
    from jsonschema import Draft7Validator

    schema = json.loads((Path(folder) / "compose-spec.json").read_text())
    assert [error.message for error in Draft7Validator(schema).iter_errors(resolved)] == []
