import os
import subprocess
import sys
import time

import pytest

from headrace.services.reward.sandbox import cpu


def test_a_quota_is_fewer_cpus(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "_QUOTA", tmp_path / "cpu.max")
    own = len(os.sched_getaffinity(0))
    assert cpu.available() == own
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpu.available() == own
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cpu.available() == 0.5


@pytest.mark.skipif(not cpu.tells_waiting(), reason="this kernel does not count it")
def test_who_is_ready_and_gets_no_cpu_waits_and_who_sleeps_does_not():
    pin = "import os, time\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    busy = [sys.executable, "-c", pin + "while True: pass"]
    commands = [busy, busy, [sys.executable, "-c", pin + "time.sleep(600)"]]
    processes = [subprocess.Popen(command) for command in commands]
    watched = [os.pidfd_open(process.pid) for process in processes]
    time.sleep(1.2)
    found = [cpu.waited_s(fd) for fd in watched]
    for process in processes:
        process.kill()
    time.sleep(0.1)
    after = [cpu.waited_s(fd) for fd in watched]  # They have ended, and nobody has waited for them.
    for process in processes:
        process.wait()
    assert found[0] + found[1] > 0.3
    assert found[2] < found[0] + found[1]
    assert after[0] >= found[0] > 0
    assert [cpu.waited_s(fd) for fd in watched] == [0.0, 0.0, 0.0]
    for fd in watched:
        os.close(fd)
