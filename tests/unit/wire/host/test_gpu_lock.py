"""The lock of a shared GPU: one holder, freed by any death, kept by a child that still uses the GPU."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.wire.errors import WaitTimeoutError
from headrace.wire.host.gpu_lock import GpuLock

_HOLDER = """
import sys, time
from pathlib import Path
from headrace.wire.host.gpu_lock import GpuLock
lock = GpuLock(Path(sys.argv[1]), 0, "holder")
assert lock.try_take()
print("held", flush=True)
if len(sys.argv) > 2:
    import subprocess
    subprocess.Popen(["sleep", "60"], pass_fds=(lock.file,), stdout=subprocess.DEVNULL)
    print("child", flush=True)
time.sleep(60)
"""


def holder(folder: Path, *more: str) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(folder), *more],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def taken_within(lock: GpuLock, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not lock.try_take():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_one_process_holds_the_gpu_lock_until_it_releases_it(tmp_path: Path) -> None:
    ours, theirs = GpuLock(tmp_path, 0, "trainer"), GpuLock(tmp_path, 0, "rollout-0")
    assert ours.try_take() and ours.try_take()
    assert not theirs.try_take()
    assert theirs.holder == f"trainer (pid {os.getpid()})"
    theirs.give()  # It is not its to give.
    assert not theirs.try_take()
    ours.give()
    assert theirs.try_take() and not ours.try_take()
    assert GpuLock(tmp_path, 1, "another GPU").try_take()


def test_a_dead_process_holds_no_gpu_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        lock = GpuLock(tmp_path, 0, "us")
        assert not lock.try_take()
        child.kill()
    assert lock.try_take()


def test_a_child_that_was_given_the_file_keeps_the_lock_for_its_life(tmp_path: Path) -> None:
    with holder(tmp_path, "with a child") as child:
        assert child.stdout is not None and child.stdout.readline() == "child\n"
        child.kill()
    lock = GpuLock(tmp_path, 0, "us")
    assert not taken_within(lock, 0.3)
    os.killpg(child.pid, signal.SIGKILL)
    assert taken_within(lock, 10)


async def test_a_wait_names_the_holder_and_ends_by_its_deadline(tmp_path: Path) -> None:
    ours, theirs = GpuLock(tmp_path, 0, "trainer"), GpuLock(tmp_path, 0, "rollout-0")
    ours.try_take()
    seen: list[str] = []
    with pytest.raises(WaitTimeoutError, match=r"GPU 0 of the run, which trainer \(pid \d+\) holds"):
        await theirs.take(0.1, seen.append)
    assert seen and seen[0].startswith("trainer")
    ours.give()
    await theirs.take(0.1)
    assert theirs.held
