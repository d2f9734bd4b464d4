"""Episodes in pods on a real node, under the restricted Pod Security Standard and with enforced NetworkPolicies."""

import json
import os
import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.compose.engine import LOCAL_IMAGES, engine_images, need_engine
from tests.e2e.compose.project import Project
from tests.integration.kubernetes import control_plane
from tests.integration.kubernetes.policies import policy_edges
from tests.integration.kubernetes.real_node import denied_packets, joined, need_root
from tests.integration.kubernetes.rendered import KUBERNETES, ROOT
from tests.integration.kubernetes.scenario import Scenario
from tests.integration.kubernetes.test_real_node import (
    BUILD_S,
    CONNECT,
    PORTS,
    TAG,
    assert_confined,
    enforcement,
    step,
    wait_for_policies,
    wait_for_step,
)
from tests.integration.kubernetes.test_real_node import IMAGES as OTHERS

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.e2e, pytest.mark.timeout(3000)]
IMAGES = {**OTHERS, "environment": TAG}
RUN_TOML = """
[run]
max_steps = 100000
[model.make]
kind = "text"
text = "words.txt"
vocab_size = 300
hidden = 32
intermediate = 64
layers = 2
heads = 2
kv_heads = 1
head_dim = 16
context = 64
chat_template = "{% for m in messages %}{{ m.content }}<end>{% endfor %}"
[data]
path = "tasks.jsonl"
[environment]
name = "game:Sums"
path = "."
slots = 4
max_turns = 2
max_turn_tokens = 3
[batch]
groups = 2
group_size = 4
[rollout.sampling]
max_tokens = 8
[[reward.scorers]]
name = "environment"
"""
GAME = """
class Sums:
    def reset(self, task, rollout_id, attempt):
        self.said = ""
        return task["prompt"]

    def step(self, message):
        self.said = message["content"]
        return {"done": False, "messages": [{"role": "user", "content": "no"}]}

    def reward(self, messages):
        return float(len(self.said) % 2)
"""
FILES = {
    "run.toml": RUN_TOML,
    "game.py": GAME,
    "words.txt": "12+30=42 no 7+8=15\n",
    "tasks.jsonl": "".join(json.dumps({"prompt": f"{number}+1="}) + "\n" for number in range(20)),
}
REQUESTS = "/spec/template/spec/containers/0/resources/requests"
SMALL = [{"op": "replace", "path": REQUESTS, "value": {"cpu": "50m", "memory": "256Mi"}}]
OWN = [{"op": "replace", "path": "/spec/template/spec/initContainers/0/args/0", "value": "/etc/headrace/run.toml"}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    """The overlay `cpu` with the components of episodes, applied to a node that has their seccomp profile."""
    control_plane.need_kubernetes()
    need_root()
    need_engine()
    variables = engine_images()
    builder = Project(f"headrace-pods-{os.getpid()}", "cpu,environment", variables, tag=TAG)
    builder.compose("build", seconds=BUILD_S)
    valkey = variables.get("VALKEY_IMAGE", "valkey/valkey:8.1.4")
    ours = [{"name": f"headrace-{name}", "newTag": tag} for name, tag in IMAGES.items()]
    images = [LOCAL_IMAGES["PYTHON_IMAGE"], valkey, *(f"{one['name']}:{one['newTag']}" for one in ours)]
    name, _, tag = valkey.partition(":")
    folder = tmp_path_factory.mktemp("overlays")
    with control_plane.started() as plane, joined(plane, *images):
        profile = plane.folder / "kubelet" / "seccomp" / "headrace"
        profile.mkdir(parents=True)
        shutil.copy(ROOT / "deploy" / "compose" / "seccomp-sandbox.json", profile)
        made = Scenario(plane, "headrace", folder)
        overlay = made.overlay(
            "cpu",
            images=[*ours, {"name": "valkey/valkey", "newName": name, "newTag": tag}],
            configMapGenerator=[
                {"name": "run-file", "namespace": "headrace", "behavior": "replace", "files": sorted(FILES)}
            ],
            patches=[
                {"target": {"kind": "Deployment", "name": "environment"}, "patch": json.dumps(SMALL)},
                {"target": {"kind": "Job", "name": "trainer"}, "patch": json.dumps(OWN)},
            ],
            components=[
                os.path.relpath(KUBERNETES / "components" / part, folder.resolve() / "cpu-0")
                for part in ("environment", "environment-sandbox", "colocate")
            ],
        )
        for file, text in FILES.items():
            (overlay / file).write_text(text)
        made.kubectl("apply", "-k", str(overlay))
        wait_for_step(made, 2)
        yield made


def test_episodes_are_played_in_a_sandbox_and_nothing_that_they_need_is_denied(run: Scenario) -> None:
    (pod,) = run.wait_for_pods(1, "environment")
    assert pod["spec"]["securityContext"]["seccompProfile"]["type"] == "Localhost"
    wait_for_policies(run)
    before = denied_packets()
    wait_for_step(run, step(run) + 5)
    assert denied_packets() == before
    words = ("exec", pod["metadata"]["name"], "-c", "environment", "--", "ls", "/runs/demo/environment")
    assert run.kubectl(*words).split() == sorted(FILES)


def test_its_pod_may_write_to_its_own_event_logs_and_to_nothing_else_of_the_volume(run: Scenario) -> None:
    assert_confined(run, "environment")


def test_the_environments_pod_reaches_what_episodes_need_and_no_more(run: Scenario) -> None:
    wait_for_policies(run)
    (pod,) = run.wait_for_pods(1, "environment")
    words = ("exec", pod["metadata"]["name"], "-c", "environment", "--", "python", "-I", "-c", CONNECT)
    found = json.loads(run.kubectl(*words, json.dumps(PORTS)))
    opened = {("environment", *target) for target, yes in zip(PORTS, found, strict=True) if yes}
    assert opened == {one for one in policy_edges("base+environment") if one[0] == "environment"}, enforcement(run)
