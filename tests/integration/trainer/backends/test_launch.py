"""Ranks live and die together."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from headrace.wire.entry import GIVEN_UP


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


@pytest.mark.long
def test_three_ranks_gather_sum_and_agree():
    code, out, errors = run(3, "ends")
    assert code == 0, errors[-2000:]
    assert "[[0], [10, 11], [20, 21, 22]] 6.0 (True, False)" in out


@pytest.mark.parametrize(("what", "code"), [("killed", 1), pytest.param("refuses", GIVEN_UP, marks=pytest.mark.long)])
def test_the_first_rank_ends_with_the_code_of_a_child_that_fails(what, code):
    status, out, errors = run(2, what)
    assert status == code, errors[-2000:]
    assert any(line.startswith("[[") for line in out.splitlines())
    # The others would have slept for ten minutes, and ended well.
    assert "rank_lost" in out + errors


@pytest.mark.long
def test_a_rank_that_never_comes_is_told_by_the_deadline():
    code, out, errors = run(2, "late")
    assert code == 1, errors[-2000:]
    assert "rank 0 found no group of 2 ranks in 8 s" in out


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
