"""Every profile and every override as Compose itself resolves it, service by service."""

import re
import shlex
from pathlib import Path

import pytest

from headrace.config.resolve import resolve, settle
from headrace.demo.demo import RUN_TOML
from headrace.doctor.placement import split
from headrace.run.preparation.input_checks import check_dtype
from tests.e2e.compose.engine import need_compose
from tests.e2e.compose.resolved import ROOT, Service, compose, parse, variables


def resolved(profiles: str | None, *files: str) -> dict[str, Service]:
    need_compose()
    return compose(profiles, *(f"deploy/compose/{file}" for file in files))


@pytest.mark.parametrize("profile", ("cpu", "gpu"))
def test_the_code_rewards_override_changes_only_the_reward_services_security_profile(profile: str) -> None:
    plain, changed = resolved(profile), resolved(profile, "code-rewards.yml")
    assert changed["reward"].pop("security_opt") == [*plain["reward"].pop("security_opt"), *sandbox("unconfined")]
    assert changed == plain


def sandbox(apparmor: str) -> list[str]:
    """The profiles of a container in which bubblewrap runs."""
    return ["seccomp=deploy/compose/seccomp-sandbox.json", f"apparmor={apparmor}"]


@pytest.mark.parametrize("gpus", range(1, 9))
def test_the_gpus_of_a_machine_are_split_as_the_doctor_proposes(gpus: int, tmp_path: Path) -> None:
    need_compose()
    services = compose("gpu", GPUS=str(gpus), ROLLOUT_TP="1")
    held = {name: devices(services[name]) for name in ("prepare", "trainer", "rollout")}
    assert held["prepare"] == held["trainer"]
    ranks, replicas = (1, 1) if gpus == 1 else split(gpus)
    assert (held["trainer"], held["rollout"]) == (
        (["0"], ["0"]) if gpus == 1 else (numbers(0, ranks), numbers(ranks, gpus))
    )
    assert services["rollout"].get("deploy", {}).get("replicas", 1) == replicas
    (tmp_path / "run.toml").write_text(RUN_TOML)
    words = services["prepare"]["command"][1:]
    found = settle(resolve(tmp_path / "run.toml", arguments=words, environment=services["prepare"]["environment"]))
    check_dtype(found)
    config = found.config
    assert (config.trainer.ranks, config.rollout.replicas) == (ranks, replicas)
    assert config.rollout.gpu_sharing == ("turns" if gpus == 1 else "none")
    for name in ("trainer", "rollout"):
        assert (
            services[name]["ulimits"]["memlock"] == -1
            and "memory" not in services[name]["deploy"]["resources"]["limits"]
        )


def devices(service: Service) -> list[str]:
    """Numbers of the GPUs that a container gets."""
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    found: list[str] = device["device_ids"]
    assert device == {"driver": "nvidia", "device_ids": found, "capabilities": ["gpu"]}
    return found


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


@pytest.mark.parametrize("profile", ("cpu", "gpu", "cpu,environment"))
def test_the_tls_override_only_adds_certificates_to_services(profile: str) -> None:
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
def test_prepare_receives_the_model_named_in_env(profile: str, service: str, model: str) -> None:
    need_compose()
    words = compose(profile, MODEL=model)[service]["command"]
    plain = shlex.split(parse()[service]["command"])
    assert words == [*plain, *(["--model.path", model] if model else [])]


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
    for name in ("prepare", "trainer", "rollout"):
        assert devices(services[name]) == ["0"]
    # What .env says, and the shares.
    assert told["RUN_ARGS_GPU"].startswith(variables()["RUN_ARGS_GPU"] + " ")
    assert services["prepare"]["command"] == shlex.split(told["RUN_ARGS_GPU"])
