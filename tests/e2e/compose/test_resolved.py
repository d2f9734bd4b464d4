"""Every profile and every override as Compose itself resolves it, service by service."""

import re
import shlex

import pytest

from tests.e2e.compose.engine import need_compose
from tests.e2e.compose.resolved import ROOT, Service, compose, facts, variables
from tests.e2e.compose.wanted import Facts, wanted

_DEFAULT = tuple(variables()["COMPOSE_PROFILES"].split(","))
STARTED = [("cpu",), ("gpu",), ("one-gpu",), ("observability",), ("cpu", "environment"), _DEFAULT]
NODE = {"HEADRACE_NODE", "HEADRACE_RENDEZVOUS"}
OVERRIDES = {
    "code-rewards.yml": ("cpu", "gpu"),
    "gpus.yml": ("gpu",),
    "nodes.yml": ("cpu",),
    "profiling.yml": ("gpu",),
    "tls.yml": ("cpu", "gpu", "one-gpu", "cpu,environment"),
}
"""Each file of deploy/compose that is added to docker-compose.yml, and the profiles it is for."""


def resolved(profiles: str | None, *files: str) -> dict[str, Service]:
    need_compose()
    return compose(profiles, *(f"deploy/compose/{file}" for file in files))


def all_facts(services: dict[str, Service]) -> dict[str, Facts]:
    return {name: facts(one) for name, one in services.items()}


@pytest.mark.parametrize(
    "profiles", [("cpu",), ("gpu",), ("one-gpu",), ("observability",), ("cpu", "environment"), _DEFAULT], ids="+".join
)
def test_every_service_of_a_profile_is_what_the_table_says(profiles: tuple[str, ...]) -> None:
    assert all_facts(resolved(",".join(profiles))) == wanted(*profiles)


def test_without_a_profile_those_of_env_are_started() -> None:
    assert _DEFAULT == ("gpu", "observability")
    assert all_facts(resolved(None)) == wanted(*_DEFAULT)


def test_the_table_of_overrides_is_complete() -> None:
    assert {file.name for file in (ROOT / "deploy/compose").glob("*.yml")} == OVERRIDES.keys()


@pytest.mark.parametrize("profile", OVERRIDES["code-rewards.yml"])
def test_code_rewards_change_the_reward_services_profile_and_nothing_else(profile: str) -> None:
    plain, changed = resolved(profile), resolved(profile, "code-rewards.yml")
    assert all_facts(changed) == wanted(profile)
    assert changed["reward"].pop("security_opt") == [*plain["reward"].pop("security_opt"), *sandbox("unconfined")]
    assert changed == plain


def test_the_apparmor_profile_of_sandboxes_is_that_of_env() -> None:
    found = compose("cpu,environment", "deploy/compose/code-rewards.yml", SANDBOX_APPARMOR="headrace-sandbox")
    for name in ("environment", "reward"):
        assert found[name]["security_opt"] == ["no-new-privileges:true", *sandbox("headrace-sandbox")]


def sandbox(apparmor: str) -> list[str]:
    """The profiles of a container in which bubblewrap runs."""
    return ["seccomp=deploy/compose/seccomp-sandbox.json", f"apparmor={apparmor}"]


def test_a_list_of_gpus_changes_the_devices_and_nothing_else() -> None:
    table = wanted("gpu")
    for name, numbers in {"prepare": "01", "trainer": "01", "rollout": "23"}.items():
        table[name] = {**table[name], "gpus": [("nvidia", *numbers, "gpu")]}
    assert all_facts(resolved("gpu", "gpus.yml")) == table


def test_profiling_makes_the_exporter_root_and_changes_nothing_else() -> None:
    plain, changed = resolved("gpu"), resolved("gpu", "profiling.yml")
    exporter = changed["dcgm-exporter"]
    assert (exporter.pop("user"), exporter.pop("cap_add")) == ("0:0", ["SYS_ADMIN"])
    assert exporter["cap_drop"] == ["ALL"] and exporter["security_opt"] == ["no-new-privileges:true"]
    assert plain["dcgm-exporter"].pop("user") == "10001:10001"
    assert changed == plain


def test_a_second_node_is_one_more_trainer() -> None:
    table = wanted("cpu")
    trainer = table["trainer-cpu"]
    node = {**trainer, "environment": trainer["environment"] | NODE}
    prepare = table["prepare-cpu"]
    words = [*prepare["command"], "--trainer.nodes", "2", "--trainer.ranks", "2"]
    table |= {"trainer-cpu": node, "trainer-node": node, "prepare-cpu": {**prepare, "command": words}}
    assert all_facts(resolved("cpu", "nodes.yml")) == table


@pytest.mark.parametrize("profile", OVERRIDES["tls.yml"])
def test_over_tls_services_are_told_of_their_certificates_and_nothing_else_changes(profile: str) -> None:
    plain, changed = resolved(profile), resolved(profile, "tls.yml")
    vault = changed["setup"]["volumes"].pop()
    assert (vault["target"], vault["source"]) == ("/state/vault", "vault")
    assert changed["setup"].pop("command") == [*plain["setup"].pop("command"), "tls"]
    assert "--tls" in str(changed["valkey"]["healthcheck"].pop("test")) and plain["valkey"]["healthcheck"].pop("test")
    for name in changed.keys() - {"setup", "valkey", "prometheus", "dcgm-exporter"}:
        assert changed[name]["environment"].pop("HEADRACE_TLS") == "/run/tokens", name
    assert changed == plain


@pytest.mark.parametrize(("profile", "service"), [("cpu", "prepare-cpu"), ("gpu", "prepare")])
@pytest.mark.parametrize("model", ["", "/models/my-model", "Qwen/Qwen2.5-0.5B-Instruct", "/models/with a space"])
def test_a_model_named_in_env_is_what_prepare_is_told(profile: str, service: str, model: str) -> None:
    need_compose()
    words = compose(profile, MODEL=model)[service]["command"]
    assert words == [*wanted(profile)[service]["command"], *(["--model.path", model] if model else [])]


def test_a_model_named_in_env_reaches_both_nodes_of_a_trainer() -> None:
    need_compose()
    words = compose("cpu", "deploy/compose/nodes.yml", MODEL="/models/a")["prepare-cpu"]["command"]
    assert words == ["--demo", "--model.path", "/models/a", "--trainer.nodes", "2", "--trainer.ranks", "2"]


def test_images_may_be_pinned_by_digest() -> None:
    need_compose()
    digest = f"sha256:{'0123456789abcdef' * 4}"
    pinned = {name: f"{value}@{digest}" for name, value in variables().items() if name.endswith("_IMAGE")}
    services = compose("gpu,observability", **pinned)
    for name, variable in {
        "valkey": "VALKEY",
        "prometheus": "PROMETHEUS",
        "grafana": "GRAFANA",
        "dcgm-exporter": "DCGM_EXPORTER",
    }.items():
        assert services[name]["image"] == pinned[f"{variable}_IMAGE"]
    for name in ("trainer", "prepare", "rollout"):
        args = services[name]["build"]["args"]
        assert {key: args[key] for key in args if key.endswith("_IMAGE")} == {
            key: pinned[key] for key in ("PYTHON_IMAGE", "ENGINE_IMAGE")
        }


def test_the_documented_variables_put_both_on_one_gpu() -> None:
    need_compose()
    text = (ROOT / "docs/compose.md").read_text()
    lines = re.findall(r"^    (ROLLOUT_GPUS|RUN_ARGS_GPU)=(.+)$", text, re.MULTILINE)
    told = dict(lines[:2])
    services = compose("gpu", **told)
    gpus = {name: one["gpus"] for name, one in all_facts(services).items() if one["gpus"]}
    assert gpus.pop("dcgm-exporter") == [("nvidia", "all", "gpu")]
    assert gpus == {name: [("nvidia", "0", "gpu")] for name in ("prepare", "trainer", "rollout")}
    # What .env says, and the shares.
    assert told["RUN_ARGS_GPU"].startswith(variables()["RUN_ARGS_GPU"] + " ")
    assert services["prepare"]["command"] == shlex.split(told["RUN_ARGS_GPU"])
