"""Replicas on a second machine: they come, go and die, the run's command too, and nothing is lost.

The second machine is a network namespace: it reaches the first by a link, and neither reaches the other's loopback.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.inspect.output import STOPPED
from tests.e2e.harness import TinyRun
from tests.warm.start import python

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
DEADLINE_S = 120
# Of this process alone: one that was killed has left its link behind.
_NET = f"10.{200 + os.getpid() // 16384 % 50}.{os.getpid() // 64 % 256}"
FIRST, SECOND = (f"{_NET}.{os.getpid() % 64 * 4 + host}" for host in (1, 2))


class Machine:
    """A network namespace with a link to this one."""

    def __init__(self) -> None:
        self.name = f"headrace-{os.getpid()}"
        self._link = f"hr{os.getpid()}"
        self._started: list[subprocess.Popen[bytes]] = []
        for command in (
            f"ip netns add {self.name}",
            f"ip link add {self._link} type veth peer name there netns {self.name}",
            f"ip addr add {FIRST}/30 dev {self._link}",
            f"ip link set {self._link} up",
            f"ip -n {self.name} addr add {SECOND}/30 dev there",
            f"ip -n {self.name} link set there up",
            f"ip -n {self.name} link set lo up",
        ):
            subprocess.run(command.split(), check=True, capture_output=True, timeout=30)

    def join(self, run: TinyRun, *arguments: str) -> subprocess.Popen[bytes]:
        command = ("ip", "netns", "exec", self.name, *python("headrace", "join", run.run_dir, "--json", *arguments))
        with (run.folder / "join.log").open("ab") as log:
            env = os.environ | {"HEADRACE_INSTANCE": "second"}
            self._started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        return self._started[-1]

    def kill(self) -> None:
        """SIGKILLs all that runs there at once, as a power cut does."""
        pids = subprocess.run(("ip", "netns", "pids", self.name), capture_output=True, text=True, timeout=30).stdout
        for pid in map(int, pids.split()):
            os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait(DEADLINE_S)

    def close(self) -> None:
        self.kill()
        subprocess.run(("ip", "netns", "del", self.name), check=True, timeout=30)


@pytest.fixture
def second() -> Iterator[Machine]:
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, and the package iproute2")
    machine = Machine()
    try:
        yield machine
    finally:
        machine.close()


def test_replicas_of_a_second_machine_come_go_and_die_and_nothing_is_lost(tmp_path: Path, second: Machine) -> None:
    run = TinyRun(tmp_path / "joined", steps=100_000, replicas=1)
    run.environment = {"HEADRACE_ANNOUNCE": FIRST}
    try:
        run.start(cold=True)
        run.wait_for_step(1)
        second.join(run, "--rollout", "--replicas", "2")
        works(run, "rollout-second-0", "rollout-second-1")
        second.kill()
        run.wait_for_step(run.steps() + 3)

        rollout, reward = second.join(run, "--rollout"), second.join(run, "--reward")
        works(run, "rollout-second-0", "reward-second-0")
        run.close()  # Its command is killed, and all that it has started.
        run.start("--resume", cold=True)
        works(run, "rollout-second-0", "reward-second-0")

        rollout.send_signal(signal.SIGTERM)
        assert rollout.wait(DEADLINE_S) == STOPPED, (run.folder / "join.log").read_text()
        run.wait_for_step(run.steps() + 3)
        assert run.stop() == STOPPED
        assert reward.wait(DEADLINE_S) == STOPPED, (run.folder / "join.log").read_text()
        run.check()
    finally:
        run.close()


def works(run: TinyRun, *replicas: str) -> None:
    """Returns when each of them has worked in a life of its own that has begun since the call."""
    before = {path: path.stat().st_size for path in run.run_dir.glob("events/**/*.jsonl")}

    def fresh(replica: str) -> bool:
        found = (path for path in run.run_dir.glob(f"events/**/{replica}-*.jsonl") if path not in before)
        return any('"group_' in path.read_text() for path in found)

    run.wait_until(lambda: all(map(fresh, replicas)), f"{replicas} to work", DEADLINE_S)
