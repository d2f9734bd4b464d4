"""The profile `cpu` on a real Docker engine: built, trained, scaled, killed, measured, taken down. In this order."""

import json
import os
from collections.abc import Iterator

import pytest

from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import ROOT, Project, docker, service_of
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

BUILD_S, UP_S = 1200, 600
RISES_S = 400
RISE = 0.08
"""Gain in held-out accuracy; the demo's own noise is a third of it."""
MAX_ADDED_MB = 300
# It must outlive this file: nothing here waits for its end.
RUN = "--demo --run.max-steps 5000 --trainer.schedule constant --eval.every 15 --trainer.checkpoint-every 5"
KILL = "import os, signal; [os.kill(int(p), signal.SIGKILL) for p in os.listdir('/proc') if p.isdecimal() and p != '1'"
KILL += " and int(p) != os.getpid() and b'services.' in open(f'/proc/{p}/cmdline', 'rb').read()]"


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    need_engine()
    made = Project(f"headrace-test-{os.getpid()}", "cpu", {**engine_images(), "RUN_ARGS_CPU": RUN})
    made.compose("build", seconds=BUILD_S)
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5", seconds=180)


@pytest.fixture(scope="module")
def running(project: Project) -> Project:
    project.compose("up", "--detach", seconds=UP_S)
    return project


def size_mb(image: str) -> float:
    return json.loads(docker("image", "inspect", image))[0]["Size"] / 1e6


@pytest.mark.parametrize("service", ["orchestrator", "reward"])
def test_an_image_without_torch_adds_little_to_its_base(project: Project, service: str) -> None:
    added = size_mb(f"headrace-{service}:test") - size_mb(base_image())
    assert 0 < added <= MAX_ADDED_MB, f"{added:.0f} MB"
    code = "import importlib.util as u; print([m for m in ('torch', 'transformers') if u.find_spec(m)])"
    found = docker("run", "--rm", "--entrypoint", "python", f"headrace-{service}:test", "-P", "-c", code)
    assert found.strip() == "[]"


def base_image() -> str:
    lines = (ROOT / ".env").read_text().splitlines()
    pinned = next(line for line in lines if line.startswith("PYTHON_IMAGE="))
    return engine_images().get("PYTHON_IMAGE", pinned.partition("=")[2])


def test_prepare_passes_the_hub_token_to_the_library_as_a_file(project: Project) -> None:
    once = ("run", "--rm", "--no-deps", "-T", "--entrypoint")
    project.compose(*once, "sh", "setup", "-c", "umask 077; echo hf_of-a-test > /state/hub/token")
    ask = "import os, huggingface_hub; print(huggingface_hub.get_token(), 'HF_TOKEN' in os.environ)"
    assert project.compose(*once, "python", "prepare-cpu", "-P", "-c", ask).split() == ["hf_of-a-test", "False"]
    project.compose(*once, "rm", "setup", "/state/hub/token")
    assert project.compose(*once, "python", "prepare-cpu", "-P", "-c", ask).split() == ["None", "False"]


def test_held_out_accuracy_rises(running: Project) -> None:

    def has_risen() -> bool:
        curve = accuracy(running)
        return len(curve) > 1 and max(curve) >= curve[0] + RISE

    until(
        has_risen,
        "accuracy to rise",
        seconds=RISES_S,
        detail=lambda: f"{accuracy(running)}\n{running.logs()}",
        every_s=1.0,
    )


def accuracy(project: Project) -> list[float]:
    return [one["accuracy"] for one in project.status().get("eval", ())]


def test_every_container_is_healthy_and_none_runs_as_root(running: Project) -> None:
    shown = until(lambda: healthy(running), "all to be healthy", seconds=120, detail=running.logs, every_s=1.0)
    assert shown >= {"valkey", "prometheus", "orchestrator-cpu", "reward", "rollout-cpu", "trainer-cpu"}
    for one in running.containers():
        user = "10002" if service_of(one) == "reward" else "10001"
        assert one["Config"]["User"] == f"{user}:{user}" and one["HostConfig"]["ReadonlyRootfs"]
        assert docker("exec", one["Id"], "cat", "/proc/1/status").count("CapEff:\t0000000000000000") == 1
        assert docker("exec", one["Id"], "id", "-u").strip() == user


def healthy(project: Project) -> set[str]:
    found = {service_of(one): one["State"]["Health"]["Status"] for one in project.containers()}
    return set(found) if all(state == "healthy" for state in found.values()) else set()


def test_secrets_are_readable_by_the_services_users_alone(running: Project) -> None:
    for one in running.of("orchestrator-cpu") + running.of("valkey"):
        modes = docker("exec", one["Id"], "sh", "-c", "stat -c '%n %a %u:%g' /run/broker/*").splitlines()
        found = dict(mode.removeprefix("/run/broker/").split(" ", 1) for mode in modes)
        # Services with users of their own are in the group of the runs.
        assert found.pop("url") == "440 10001:10001"
        assert found == {"password": "400 10001:10001", "valkey.conf": "400 10001:10001"}
        assert "redis://:" not in json.dumps(one["Config"]["Env"] + one["Args"])


def test_rollouts_scale_up_to_serve_and_scale_down_to_leave(running: Project) -> None:
    # While it takes new weights in it is not among them.
    until(lambda: _exactly(1, serving(running)), "one to serve", seconds=60, detail=running.logs, every_s=1.0)
    running.compose(
        "up", "--detach", "--no-recreate", "--no-deps", "--scale", "rollout-cpu=3", "rollout-cpu", seconds=UP_S
    )
    three = until(
        lambda: _exactly(3, serving(running)), "three to serve", seconds=180, detail=running.logs, every_s=1.0
    )
    tokens = until(
        lambda: generating(running, three), "all three to generate", seconds=120, detail=running.logs, every_s=1.0
    )
    assert tokens
    before = step(running)
    running.compose(
        "up", "--detach", "--no-recreate", "--no-deps", "--scale", "rollout-cpu=1", "rollout-cpu", seconds=UP_S
    )
    assert len(running.of("rollout-cpu")) == 1
    until(lambda: _exactly(1, serving(running)), "two to be gone", seconds=60, detail=running.logs, every_s=1.0)
    until(lambda: step(running) > before + 3, "steps without them", seconds=120, detail=running.logs, every_s=1.0)


def _exactly(count: int, found: set[str]) -> set[str]:
    return found if len(found) == count else set()


def serving(project: Project) -> set[str]:
    return {one["id"] for one in project.status().get("replicas", ()) if one["state"].lower() == "serving"}


def generating(project: Project, replicas: set[str]) -> bool:
    """Whether each has generated tokens, as Prometheus tells."""
    (found,) = project.query('sum by (replica) (headrace_rollout_tokens_total{kind="generated"}) > 0')
    return {one["metric"].get("replica") for one in found} >= replicas


def step(project: Project) -> int:
    return int(project.status().get("step", 0))


def test_a_killed_rollout_and_a_killed_trainer_do_not_end_the_run(running: Project) -> None:
    (rollout,) = running.of("rollout-cpu")
    docker("kill", rollout["Id"])
    running.compose("up", "--detach", "--no-recreate", "--no-deps", "rollout-cpu", seconds=UP_S)
    before = step(running)
    until(lambda: step(running) > before + 3, "steps after it", seconds=180, detail=running.logs, every_s=1.0)

    (trainer,) = running.of("trainer-cpu")
    answer = until(running.status, "an answer", seconds=60, detail=running.logs, every_s=1.0)
    before, incarnation = answer["step"], answer["incarnation"]
    running.python("trainer-cpu", KILL)
    until(
        lambda: running.status().get("incarnation", 0) > incarnation and step(running) > before + 3,
        "another trainer to go on",
        seconds=240,
        detail=running.logs,
        every_s=1.0,
    )
    (again,) = running.of("trainer-cpu")
    assert again["Id"] == trainer["Id"] and again["RestartCount"] == trainer["RestartCount"] + 1


def test_prometheus_has_every_target_and_no_rule_fails(running: Project) -> None:

    wanted = {"orchestrator", "reward", "rollout", "trainer", "prometheus"}

    def targets_up() -> bool:
        (found,) = running.ask_prometheus("targets?state=active")
        up = {one["labels"].get("service", "") for one in found["activeTargets"] if one["health"] == "up"}
        return up >= wanted

    until(targets_up, "every target to be up", seconds=90, detail=running.logs, every_s=1.0)
    (found,) = running.ask_prometheus("rules")
    rules = [rule for group in found["groups"] for rule in group["rules"]]
    assert rules and all(rule["health"] == "ok" for rule in rules), rules


def test_down_leaves_nothing(project: Project) -> None:
    containers = project.containers()
    assert {service_of(one) for one in containers} >= {"trainer-cpu", "rollout-cpu"}
    project.compose("stop", "trainer-cpu", seconds=180)
    ended = [one for one in project.containers(all_of_them=True) if service_of(one) == "trainer-cpu"]
    assert [one["State"]["ExitCode"] for one in ended] == [0], project.logs()
    project.compose("--profile", "*", "down", "--volumes", "--timeout", "20", seconds=180)
    assert project.left() == {}
