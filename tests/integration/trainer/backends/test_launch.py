"""Ranks live and die together."""

import os
import subprocess
import sys
import time

import psutil
import pytest


def start(size, what):
    command = [sys.executable, "-m", "tests.integration.trainer.backends.launch_rank", str(size), what]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(size, what):
    process = start(size, what)
    try:
        out, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    return process.returncode, out, errors


def test_the_first_rank_ends_when_a_child_is_killed():
    status, out, errors = run(2, "killed")
    assert status == 1, errors[-2000:]
    # The other would have slept for ten minutes.
    assert "rank_lost" in out + errors


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's signal at a parent's death")
def test_children_die_with_the_first_rank():
    process = start(2, "leaves")
    children = []
    while process.poll() is None:
        children = psutil.Process(process.pid).children() or children
        time.sleep(0.05)
    process.communicate(timeout=10)
    assert process.returncode == 0 and children
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
