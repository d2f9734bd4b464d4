"""The trainer over several pods: who is which node, how they meet, and what a failure does."""

import copy
import os
import socket
import subprocess
import sys

import pytest

from headrace.wire.environment import NAMES
from tests.integration.kubernetes.rendered import named, render
from tests.ports import free_port

WITH = ("base+jobset", "base+everything", "cluster")
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def job_of(name):
    (replicated,) = named(render(name), "JobSet", "trainer")["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def container(job, name):
    spec = job["template"]["spec"]
    return next(one for one in (*spec["containers"], *spec["initContainers"]) if one["name"] == name)


def environment(of):
    return {one["name"]: one.get("value") or one["valueFrom"] for one in of["env"]}


def test_it_runs_the_pod_of_the_job_and_adds_only_what_makes_it_a_node():
    plain, job = named(render("base+kueue"), "Job", "trainer")["spec"], copy.deepcopy(job_of("base+jobset"))
    assert (job.pop("completionMode"), job.pop("backoffLimit")) == ("Indexed", 0)
    assert (
        plain.pop("backoffLimit")
        == named(render("cluster"), "JobSet", "trainer")["spec"]["failurePolicy"]["maxRestarts"]
    )
    for name in ("trainer", "prepare"):
        of = container(job, name)
        of["env"] = [one for one in of["env"] if one["name"] not in {"HEADRACE_NODE", "HEADRACE_RENDEZVOUS", "NODES"}]
    container(job, "trainer")["ports"].remove({"name": "rendezvous", "containerPort": 29500})
    container(job, "prepare")["command"] = ["headrace", "prepare"]
    assert job == plain
    assert not [one for one in render("base+jobset") if one["kind"] == "Job"]


@pytest.mark.parametrize("name", WITH)
def test_every_pod_knows_its_number_and_where_the_first_one_is(name):
    assert {"HEADRACE_NODE", "HEADRACE_RENDEZVOUS"} <= NAMES
    spec = named(render(name), "JobSet", "trainer")["spec"]
    network, (replicated,) = spec["network"], spec["replicatedJobs"]
    assert network["enableDNSHostnames"] and network["publishNotReadyAddresses"] and replicated["replicas"] == 1
    # Pods find themselves by the JobSet's own Service: one of that name would be taken for it.
    services = {one["metadata"]["name"] for one in render(name) if one["kind"] == "Service"}
    assert network["subdomain"] not in services
    job = replicated["template"]["spec"]
    assert job["completionMode"] == "Indexed"
    (port,) = [one["containerPort"] for one in container(job, "trainer")["ports"] if one["name"] == "rendezvous"]
    for of in ("trainer", "prepare"):
        told = environment(container(job, of))
        assert told["HEADRACE_NODE"] == {"fieldRef": {"fieldPath": INDEX}}
        assert told["HEADRACE_RENDEZVOUS"] == f"trainer-{replicated['name']}-0-0.{network['subdomain']}:{port}"


@pytest.mark.parametrize("name", WITH)
def test_the_number_of_pods_is_said_once(name):
    job = job_of(name)
    nodes = job["parallelism"]
    assert nodes == (2 if name == "cluster" else 1)
    assert job["completions"] == nodes and environment(container(job, "prepare"))["NODES"] == str(nodes)


def test_the_model_is_fetched_before_the_run_is_prepared_and_once():
    spec = job_of("cluster")["template"]["spec"]
    assert [one["name"] for one in spec["initContainers"]] == ["fetch", "prepare"]
    fetch = container(job_of("cluster"), "fetch")
    # Kubernetes tells a pod its index; the others end at once.
    given = {"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": "1", "MODEL": "none"}
    done = subprocess.run([*fetch["command"], *fetch["args"]], env=given, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", WITH)
def test_a_failed_pod_restarts_all_and_a_refusal_ends_all(name):
    spec, job = named(render(name), "JobSet", "trainer")["spec"], job_of(name)
    assert spec["successPolicy"] == {"operator": "All"}
    assert job["backoffLimit"] == 0 and job["podReplacementPolicy"] == "Failed"
    (rule,) = spec["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    rules = job["podFailurePolicy"]["rules"]
    codes = {
        (one["action"], one["onExitCodes"]["containerName"]): one["onExitCodes"]["values"]
        for one in rules
        if "onExitCodes" in one
    }
    assert codes == {("FailJob", "prepare"): [2], ("FailJob", "trainer"): [2, 3], ("Ignore", "trainer"): [143]}
    assert [one["action"] for one in rules if "onPodConditions" in one] == ["Ignore"]


def run_prepare(tmp_path, node, rendezvous):
    """The init container's own command, with a `headrace` that tells its arguments."""
    told = tmp_path / "headrace"
    told.write_text('#!/bin/sh\necho headrace "$@"\n')
    told.chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    of = container(job_of("cluster"), "prepare")
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HEADRACE_NODE": node, "HEADRACE_RENDEZVOUS": rendezvous}
    # Python finds its environment by its own path.
    given |= {"NODES": environment(of)["NODES"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [*of["command"], "run.toml"], env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_the_first_pod_prepares_for_the_number_of_pods(tmp_path):
    with run_prepare(tmp_path, "0", "nowhere.invalid:1") as process:
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "headrace prepare run.toml --trainer.nodes=2\n")


def test_the_others_wait_until_the_first_ones_trainer_listens(tmp_path):
    port = free_port()
    with run_prepare(tmp_path, "1", f"127.0.0.1:{port}") as process:
        assert "waiting for the trainer of pod 0" in process.stdout.readline()
        assert process.poll() is None
        with socket.create_server(("127.0.0.1", port)):
            said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")


def test_a_budget_of_the_trainer_lets_one_pod_go():
    for name in ("cluster", "single-node-gpu", "cpu"):
        budgets = [one for one in render(name) if one["kind"] == "PodDisruptionBudget"]
        for spec in [one["spec"] for one in budgets if one["metadata"]["name"] == "trainer"]:
            # Of a Job's pods only a number that must stay can be told, and one pod must always be free to go.
            assert spec["minAvailable"] < job_of(name)["parallelism"] and "maxUnavailable" not in spec
            assert "unhealthyPodEvictionPolicy" not in spec
