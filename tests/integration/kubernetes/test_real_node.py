"""The overlay `cpu`, and two rendered runs, in pods on a real node with their NetworkPolicies enforced."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.compose.engine import LOCAL_IMAGES, engine_images, need_engine
from tests.e2e.compose.project import Project
from tests.integration.kubernetes import control_plane
from tests.integration.kubernetes.control_plane import ControlPlane
from tests.integration.kubernetes.policies import policy_edges
from tests.integration.kubernetes.real_node import (
    denied_packets,
    enforcer_log,
    enforces,
    joined,
    need_root,
    network,
    rules_of_forward,
)
from tests.integration.kubernetes.rendered import CPU_RUN, ROOT, Manifest
from tests.integration.kubernetes.scenario import Scenario
from tests.verbs import said
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.e2e, pytest.mark.timeout(3000)]
BUILD_S, TRAIN_S = 1200, 1500
STEPS = 100
"""Those of the demo."""
TAG = "pods"
TEXT = (ROOT / "docs/kubernetes.md").read_text()
IMAGES = {"orchestrator": TAG, "reward": TAG, "rollout": f"{TAG}-cpu", "trainer": f"{TAG}-cpu"}
SOURCES = ("orchestrator", "rollout", "reward")
PORTS = (("valkey", 6379), *((name, port) for name in SOURCES for port in (7000, 8080)))
CONNECT = """
import concurrent.futures, json, socket, sys
def opens(target):
    try:
        socket.create_connection(target, timeout=5).close()
    except OSError:
        return False
    return True
targets = [tuple(one) for one in json.loads(sys.argv[1])]
with concurrent.futures.ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps(list(pool.map(opens, targets))))
"""
ACT = """
import sys, urllib.error, urllib.request
url = 'http://127.0.0.1:8080'
headers = {'Content-Type': 'application/json', 'Origin': url, 'Authorization': 'Bearer ' + sys.argv[1]}
try:
    answer = urllib.request.urlopen(urllib.request.Request(url + '/api/actions/resume', b'{}', headers), timeout=20)
    print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
STATUS = """
import pathlib, urllib.request
headers = {'Authorization': 'Bearer ' + pathlib.Path('/run/secrets/user-tokens/operator').read_text().strip()}
asked = urllib.request.Request('http://127.0.0.1:8080/api/status', headers=headers)
print(urllib.request.urlopen(asked, timeout=20).read().decode())
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    """The overlay, applied to a node of its own."""
    control_plane.need_kubernetes()
    need_root()
    need_engine()
    variables = engine_images()
    Project(f"headrace-pods-{os.getpid()}", "cpu", variables, tag=TAG).compose("build", seconds=BUILD_S)
    # The recipe's server of names runs in this one.
    needed = [LOCAL_IMAGES["PYTHON_IMAGE"], *(f"{one.get('newName', one['name'])}:{one['newTag']}" for one in images())]
    with control_plane.started() as plane, joined(plane, *needed):
        made = Scenario(plane, "headrace", tmp_path_factory.mktemp("overlays"))
        made.apply("cpu", images=images())
        wait_for_step(made, 2)
        yield made


def test_nothing_that_the_run_needs_is_denied(run: Scenario) -> None:
    wait_for_policies(run)
    before = denied_packets()
    wait_for_step(run, step(run) + 5)
    assert denied_packets() == before


def test_the_policies_open_the_edges_of_the_design_and_no_others(run: Scenario) -> None:
    wait_for_policies(run)
    before = denied_packets()
    opened = set()
    for source in SOURCES:
        (pod,) = run.wait_for_pods(1, source)
        targets = [one for one in PORTS if one[0] != source]
        words = ("exec", pod["metadata"]["name"], "-c", source, "--", "python", "-I", "-c", CONNECT)
        found = json.loads(run.kubectl(*words, json.dumps(targets)))
        opened |= {(source, *target) for target, yes in zip(targets, found, strict=True) if yes}
    designed = {one for one in policy_edges("cpu") if one[0] in SOURCES and one[1:] in PORTS}
    assert opened == designed, enforcement(run)
    assert denied_packets() > before


def test_an_operator_action_needs_the_token_read_by_the_documented_command(run: Scenario) -> None:
    page = (ROOT / "docs/access.md").read_text()
    (read,) = re.findall(r"^kubectl -n headrace (exec orchestrator-0 .* cat .*)$", page, re.M)
    token = run.kubectl(*read.split()).strip()
    assert len(token) == 64
    words = ("exec", "orchestrator-0", "-c", "orchestrator", "--", "python", "-I", "-c", ACT)
    assert [run.kubectl(*words, given).strip() for given in ("none", token)] == ["401", "200"]


def test_the_documented_commands_prove_the_run_and_fetch_the_model(run: Scenario, tmp_path: Path) -> None:
    until(lambda: ended(run), "the Job to end", seconds=TRAIN_S, detail=lambda: shown(run), every_s=1.0)
    (check,) = re.findall(r"^\$ kubectl -n headrace (exec orchestrator-0 .* headrace check .*)$", TEXT, re.M)
    assert f"in order: {STEPS} steps" in run.kubectl(*check.split())
    (fetch,) = re.findall(r"^\$ kubectl -n headrace (cp .*) my-model$", TEXT, re.M)
    run.kubectl(*fetch.split(), str(tmp_path / "my-model"))
    assert (tmp_path / "my-model" / "model.safetensors").is_file()


def test_one_of_two_runs_is_killed_scaled_and_removed_and_the_other_is_undisturbed(
    run: Scenario, tmp_path: Path
) -> None:
    run.kubectl("delete", "namespace", run.namespace, "--wait=false")
    one, other = (
        submitted(run.plane, name, tmp_path / name, steps) for name, steps in (("one", 600), ("other", 99999))
    )
    for each in (one, other):
        wait_for_step(each, 2)
    (before, had) = (lives(other), step(other))
    (trainer,) = one.wait_for_pods(1, "trainer")
    one.kubectl("delete", "pod", trainer["metadata"]["name"], "--wait=false")
    for count in (3, 0, 1):
        one.kubectl("scale", "deployment", "one-rollout", f"--replicas={count}")
        wait_for_rollouts(one, count)
    until(lambda: ended(one), "the Job to end", seconds=TRAIN_S, detail=one.shown, every_s=1.0)
    assert job(one)["status"].get("succeeded") == 1 and step(one) == 600, one.shown()
    one.kubectl("delete", "-k", str(tmp_path / "one"), seconds=TRAIN_S)
    until(lambda: not one.pods(), "no pod to be left", seconds=TRAIN_S, detail=one.shown, every_s=1.0)
    wait_for_step(other, had + 5)
    assert lives(other) == before


def submitted(plane: ControlPlane, name: str, folder: Path, steps: int) -> Scenario:
    """A run `NAME` in a namespace `team-NAME`, as `headrace k8s render` has it, with the images of these tests."""
    folder.mkdir()
    (folder / "run.toml").write_text(CPU_RUN.replace("max_steps = 40", f"max_steps = {steps}"))
    (folder / "prompts.jsonl").write_text('{"prompt": "1+2="}\n' * 50)
    words = ("k8s", "render", folder / "run.toml", "--name", name, "--namespace", f"team-{name}")
    (folder / "run.yaml").write_text(said(*words))
    (folder / "kustomization.yaml").write_text(json.dumps({"resources": ["run.yaml"], "images": images()}))
    plane.kubectl("create", "namespace", f"team-{name}")
    plane.kubectl("apply", "-k", str(folder))
    return Scenario(plane, f"team-{name}", folder, f"{name}-")


def wait_for_rollouts(run: Scenario, count: int) -> None:
    def settled() -> bool:
        return len(run.pods("rollout")) == len(run.ready("rollout")) == count

    until(settled, f"{count} rollouts", seconds=TRAIN_S, detail=run.shown, every_s=1.0)


def lives(run: Scenario) -> dict[str, int]:
    """Restarts of every pod that is there."""
    return {
        pod["metadata"]["uid"]: sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
        for pod in run.pods()
    }


def images() -> list[dict[str, str]]:
    """Those of the local engine, as a kustomization names them."""
    name, _, tag = engine_images().get("VALKEY_IMAGE", "valkey/valkey:8.1.4").partition(":")
    ours = [{"name": f"headrace-{name}", "newTag": tag} for name, tag in IMAGES.items()]
    return [*ours, {"name": "valkey/valkey", "newName": name, "newTag": tag}]


def job(run: Scenario) -> Manifest:
    found: Manifest = json.loads(run.kubectl("get", "job", f"{run.prefix}trainer", "-o", "json"))
    return found


def ended(run: Scenario) -> bool:
    conditions = job(run)["status"].get("conditions", ())
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def step(run: Scenario) -> int:
    """What the dashboard's API says; -1 while it does not answer."""
    words = ("exec", f"{run.prefix}orchestrator-0", "-c", "orchestrator", "--", "python", "-I", "-c", STATUS)
    done = run.plane.attempt("-n", run.namespace, *words)
    return int(json.loads(done.stdout).get("step", 0)) if done.returncode == 0 else -1


def wait_for_policies(run: Scenario) -> None:
    """Every pod of the run has chains in both directions."""
    until(lambda: enforces(addresses(run)), "policies to be enforced", seconds=120, detail=lambda: enforcement(run))


def addresses(run: Scenario) -> set[str]:
    """The addresses of all pods of the run that are there now."""
    pods = json.loads(run.kubectl("get", "pods", "-o", "json"))["items"]
    there = [one for one in pods if one["status"].get("phase") not in ("Succeeded", "Failed")]
    return {one["status"].get("podIP", "no address yet") for one in there}


def enforcement(run: Scenario) -> str:
    return f"{enforcer_log(run.plane)}\n{rules_of_forward()}"


def shown(run: Scenario) -> str:
    return f"{network(run.plane)}\n{run.shown()}"


def wait_for_step(run: Scenario, wanted: int) -> None:
    def reached() -> bool:
        assert not ended(run), shown(run)
        return step(run) >= wanted

    until(reached, f"step {wanted}", seconds=TRAIN_S, detail=lambda: shown(run), every_s=1.0)
