"""What `headrace k8s render` makes of a config: a run beside which others have room."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kubernetes.policies import COMPONENT, RUN
from tests.integration.kubernetes.rendered import (
    CPU_RUN,
    GPU_RUN,
    RUNS,
    Manifest,
    containers,
    named,
    need_kubectl,
    pods,
    run_of,
)
from tests.verbs import said

GPU = RUNS["run-gpu"]


def selections(value: Any) -> list[Manifest]:
    """Every mapping that is a set of labels of a component, or a selector of components."""
    if isinstance(value, list):
        return [one for each in value for one in selections(each)]
    if not isinstance(value, dict):
        return []
    selects = [one["key"] for one in value.get("matchExpressions", ())]
    here = [value.get("matchLabels", {})] if COMPONENT in selects else [value] if COMPONENT in value else []
    return here + [one for each in value.values() for one in selections(each)]


def test_runs_of_a_namespace_share_no_object_select_no_foreign_pod_and_scale_by_their_own_backlog() -> None:
    one, other = (run_of(replace(GPU, name=name, namespace="team-a"), GPU_RUN) for name in ("one", "other"))
    names = [{(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (one, other)]
    assert names[0] and not names[0] & names[1]
    found = selections(list(one))
    assert len(found) > 50 and {each.get(RUN) for each in found} == {"one"}
    assert {each["metadata"]["namespace"] for each in one} == {"team-a"}
    queries = [each["spec"]["triggers"][0]["metadata"]["query"] for each in one if each["kind"] == "ScaledObject"]
    assert len(queries) == 3 and all('namespace="team-a",run="one"' in query for query in queries)
    denied = named(one, "NetworkPolicy", "one-default-deny")["spec"]["podSelector"]
    assert denied == {"matchLabels": {RUN: "one"}}
    addresses = set(re.findall(r"[\w.-]+(?=:(?:7000|29500))", json.dumps([pod for _, pod in pods(one)])))
    assert addresses == {"one-orchestrator", "one-trainer-node-0-0.one-trainer-nodes"}


def test_a_run_gets_the_gpus_that_it_names_through_its_queue() -> None:
    objects = run_of(GPU, GPU_RUN)
    gpus = {where: one["resources"]["limits"].get("nvidia.com/gpu") for where, _, one, _ in containers(objects)}
    assert gpus["JobSet/exp2-trainer/node/trainer"] == 8 and gpus["Deployment/exp2-rollout/rollout"] == 2
    assert named(objects, "ScaledObject", "exp2-rollout")["spec"]["maxReplicaCount"] == (24 - 16) / 2
    queued = [one["kind"] for one in objects if one["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == "team"]
    assert queued == ["Deployment", "JobSet"]
    images = {one["image"] for _, _, one, _ in containers(objects)}
    assert "registry.example/team/headrace-trainer:0.1.0-gpu" in images


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--gpus", 17], "give 18"),
        ([], 'run.device is "cuda"'),
        (["--gpus", 18, "--component", "monitoring"], "--component monitoring"),
        (["--gpus", 18, "--name", "A"], "--name A"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_way_out(words: list[object], reason: str, tmp_path: Path) -> None:
    need_kubectl()
    (file := tmp_path / "run.toml").write_text(GPU_RUN)
    assert reason in said("k8s", "render", file, "--name", "one", "--namespace", "team-a", *words, status=2)


def test_a_folder_that_a_config_map_cannot_hold_is_refused(tmp_path: Path) -> None:
    need_kubectl()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/prompts.jsonl").write_text("{}")
    (file := tmp_path / "run.toml").write_text(CPU_RUN.replace("prompts.jsonl", "data/prompts.jsonl"))
    assert "has no folders" in said("k8s", "render", file, "--name", "one", "--namespace", "team-a", status=2)


def test_a_second_render_is_the_first_one(tmp_path: Path) -> None:
    need_kubectl()
    (file := tmp_path / "run.toml").write_text(CPU_RUN)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "1+2="}\n')
    words = ("k8s", "render", file, "--name", "one", "--namespace", "team-a")
    assert said(*words) == said(*words)
