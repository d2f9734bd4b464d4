"""The trainer over several pods: who is which node, how they meet, and what a failure does."""

import os
import socket
import subprocess
import sys

import pytest

from tests.integration.kubernetes.rendered import named, render
from tests.ports import free_port

WITH = ("base+jobset", "base+everything", "cluster")


def job_of(name):
    (replicated,) = named(render(name), "JobSet", "trainer")["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def container(job, name):
    spec = job["template"]["spec"]
    return next(one for one in (*spec["containers"], *spec["initContainers"]) if one["name"] == name)


def environment(of):
    return {one["name"]: one.get("value") or one["valueFrom"] for one in of["env"]}


@pytest.mark.parametrize("name", WITH)
def test_a_job_and_its_container_agree_on_the_number_of_pods(name):
    job = job_of(name)
    nodes = job["parallelism"]
    assert nodes == (2 if name == "cluster" else 1)
    assert job["completions"] == nodes and environment(container(job, "prepare"))["NODES"] == str(nodes)


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
    given = {"JOB_COMPLETION_INDEX": node, "HEADRACE_RENDEZVOUS": rendezvous}
    # Python finds its environment by its own path.
    given |= {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "NODES": environment(of)["NODES"],
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.Popen(
        [*of["command"], "run.toml"], env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_other_pods_wait_until_the_trainer_of_pod_0_listens(tmp_path):
    port = free_port()
    with run_prepare(tmp_path, "1", f"127.0.0.1:{port}") as process:
        assert "the trainer of pod 0 does not listen" in process.stdout.readline()
        assert process.poll() is None
        with socket.create_server(("127.0.0.1", port)):
            said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
