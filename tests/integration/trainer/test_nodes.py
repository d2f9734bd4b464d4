"""A trainer over two machines of two ranks: they meet, live and die together, and meet again."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from services.trainer.settings import TrainerSettings
from wire.lifecycle import die_with_parent

pytestmark = pytest.mark.timeout(600)
DEADLINE_S = 120
NODE_TIMEOUT_S = 6.0
"""Long enough for a rank that a loaded machine does not let run."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Machines:
    """Two machines of one trainer, on loopback; each is started with what its surroundings say."""

    def __init__(self, folder, **trainer):
        self.folder, self.rendezvous = folder, f"127.0.0.1:{free_port()}"
        table = {"ranks": 4, "nodes": 2, "node_timeout_s": NODE_TIMEOUT_S, "rendezvous_timeout_s": DEADLINE_S} | trainer
        settings = TrainerSettings.model_validate({"trainer": table, "run_dir": folder})
        (folder / "settings.json").write_text(settings.model_dump_json())
        self.processes = []

    def start(self, node):
        told = {"HEADRACE_NODE": str(node), "HEADRACE_RENDEZVOUS": self.rendezvous}
        quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        command = [sys.executable, "-m", "tests.integration.trainer.nodes_rank", str(self.folder)]
        with self.log(node).open("a") as log:
            process = subprocess.Popen(
                command, env=os.environ | quiet | told, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        self.processes.append(process)
        return process

    def log(self, node):
        return self.folder / f"node-{node}.log"

    def lives(self, what="joined"):
        path = self.folder / "lives.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["what"] == what]

    def wait_until_joined(self, lives=1):
        """Process ids of all ranks of the newest life."""
        end = time.monotonic() + DEADLINE_S
        while len(self.lives()) < 4 * lives:
            assert time.monotonic() < end, self.logs()
            time.sleep(0.05)
        newest = self.lives()[-4:]
        assert len({line["life"] for line in newest}) == 1, newest
        return {line["rank"]: line["pid"] for line in newest}

    def logs(self):
        return "".join(
            f"\n--- {node}\n{self.log(node).read_text()[-3000:]}" for node in (0, 1) if self.log(node).exists()
        )

    def close(self):
        for process in self.processes:
            for child in psutil.Process(process.pid).children() if process.poll() is None else []:
                child.kill()
            process.kill()
            process.wait(10)


@pytest.fixture
def machines(tmp_path):
    made = Machines(tmp_path)
    yield made
    made.close()


def gone(pids, seconds):
    """Whether all these processes end in time; a dead one that nobody has waited for yet counts."""
    end = time.monotonic() + seconds
    living = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    while time.monotonic() < end:
        living = [one for one in living if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
        if not living:
            return True
        time.sleep(0.05)
    return False


VICTIMS = [
    (signal.SIGKILL, 3, "rank 3 of node 1 was killed by signal 9"),
    (signal.SIGKILL, 2, "rank 2 of node 1 is silent"),
    (signal.SIGKILL, 0, "node 0 is gone"),
    (signal.SIGSTOP, 3, "rank 3 of node 1 is silent"),
    (signal.SIGSTOP, 0, "node 0 is silent"),
]


def test_whoever_is_gone_ends_all_machines_by_name_and_they_meet_again(machines):
    for lives, (number, rank, name) in enumerate(VICTIMS, 1):
        nodes = [machines.start(0), machines.start(1)]
        pids = machines.wait_until_joined(lives)
        os.kill(pids[rank], number)
        # A frozen first process is for its own keeper to kill; with it go its children.
        frozen = number == signal.SIGSTOP and rank == 0
        assert gone(set(pids.values()) - ({pids[rank]} if frozen else set()), DEADLINE_S), machines.logs()
        assert name in machines.log(0 if rank else 1).read_text(), machines.logs()
        if frozen:
            nodes[0].kill()
        killed = {0: [-9, 1], 2: [1, -9], 3: [1, 1]}
        assert [node.wait(DEADLINE_S) for node in nodes] == killed[rank], machines.logs()
    # A machine that comes late, alone and again: the others are told, and all meet in a new life.
    nodes = [machines.start(0), machines.start(1)]
    machines.wait_until_joined(len(VICTIMS) + 1)
    again = machines.start(1)
    assert [node.wait(DEADLINE_S) for node in nodes] == [1, 1], machines.logs()
    assert "node 1 was started again" in machines.log(0).read_text()
    leader = machines.start(0)
    machines.wait_until_joined(len(VICTIMS) + 2)
    again.terminate()
    assert [node.wait(DEADLINE_S) for node in (leader, again)] == [0, 0], machines.logs()
    left = machines.lives("left")
    # Node 0 was told of the signal that came to node 1.
    assert len(left) == 4 and [line["signalled"] for line in left if line["rank"] == 0] == [True]


def test_a_machine_that_waits_for_others_says_for_whom_and_ends_in_time(tmp_path):
    machines = Machines(tmp_path, rendezvous_timeout_s=3.0)
    try:
        first, second = machines.start(0), None
        assert first.wait(DEADLINE_S) == 1
        assert "waited 3 s (trainer.rendezvous_timeout_s) for node 1 of 2 to come" in machines.log(0).read_text()
        second = machines.start(1)
        assert second.wait(DEADLINE_S) == 1
        assert f"for node 0 at {machines.rendezvous}" in machines.log(1).read_text()
    finally:
        machines.close()
