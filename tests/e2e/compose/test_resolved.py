"""Every profile and every override as Compose itself resolves it, service by service."""

import re
import shlex

import pytest

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


def test_the_gpu_list_override_changes_only_devices() -> None:
    plain, changed = resolved("gpu"), resolved("gpu", "gpus.yml")
    for name, numbers in {"prepare": "01", "trainer": "01", "rollout": "23"}.items():
        (device,) = changed[name]["deploy"]["resources"]["reservations"].pop("devices")
        assert device["device_ids"] == [*numbers]
        del plain[name]["deploy"]["resources"]["reservations"]["devices"]
    assert changed == plain


@pytest.mark.parametrize("profile", ("cpu", "gpu", "one-gpu", "cpu,environment"))
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
        (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == ["0"]
    # What .env says, and the shares.
    assert told["RUN_ARGS_GPU"].startswith(variables()["RUN_ARGS_GPU"] + " ")
    assert services["prepare"]["command"] == shlex.split(told["RUN_ARGS_GPU"])
