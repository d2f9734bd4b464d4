"""The guard: whatever a command started ends with the guard's parent."""

import signal
import subprocess
import sys

from headrace.services.rollout.engines.sglang import guard
from tests.sglang import group_of
from tests.waiting import until

COMMAND = [sys.executable, "-I", "-S", guard.__file__, sys.executable, "-c"]
CHILD = "import subprocess, sys, time; subprocess.Popen(['sleep', '300']); print('up', flush=True); "


def test_the_guard_leaves_nothing_behind_when_its_parent_is_gone() -> None:
    command = [*COMMAND, CHILD + "time.sleep(300)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as guarded:
        assert guarded.stdin is not None and guarded.stdout is not None
        assert guarded.stdout.readline() == b"up\n"
        assert len(group_of(guarded.pid)) == 3
        guarded.stdin.close()
        assert guarded.wait(60) == -signal.SIGKILL
        until(lambda: not group_of(guarded.pid))


def test_the_guard_kills_leftover_children_and_reports_the_status() -> None:
    command = [*COMMAND, CHILD + "sys.exit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as guarded:
        assert guarded.stderr is not None
        assert guarded.wait(60) == -signal.SIGKILL
        assert guarded.stderr.read() == b"the server ended with status 7\n"
        until(lambda: not group_of(guarded.pid))
