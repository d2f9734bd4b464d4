"""A trainer over two machines of two ranks: they meet, live and die together, and meet again."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from headrace.services.trainer.settings import TrainerSettings
from headrace.supervisor.ports import pick_ports
from headrace.wire.lifecycle import die_with_parent

pytestmark = pytest.mark.timeout(600)
DEADLINE_S = 120
NODE_TIMEOUT_S = 10.0
"""Long enough for a rank that a loaded machine does not let run."""


class Machines:
    """Two machines of one trainer, on loopback; each is started with what its surroundings say."""

    def __init__(self, folder, **trainer):
        folder.mkdir(exist_ok=True)
        self.folder, self.rendezvous = folder, f"127.0.0.1:{pick_ports(1)[0]}"
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
    # Of the silent the first is named: on a loaded machine it may be another.
    (signal.SIGKILL, 2, "rank [123] of node [01] is silent|node 1 was started again"),
    (signal.SIGKILL, 0, "node 0 is gone"),
    (signal.SIGSTOP, 0, "node 0 is silent"),
]


@pytest.mark.long
def test_whoever_is_gone_ends_all_machines_by_name_and_they_meet_again(machines):
    nodes = [machines.start(0), machines.start(1)]
    for lives, (number, rank, name) in enumerate(VICTIMS, 1):
        pids = machines.wait_until_joined(lives)
        os.kill(pids[rank], number)
        # A machine that is started again while the others still live gets into their next life, never into this one.
        again = machines.start(1) if rank == 2 else None
        # A frozen first process is for its own supervisor to kill; with it go its children.
        frozen = number == signal.SIGSTOP
        assert gone(set(pids.values()) - ({pids[rank]} if frozen else set()), DEADLINE_S), machines.logs()
        assert re.search(name, machines.log(0 if rank else 1).read_text()), machines.logs()
        if frozen:
            nodes[0].kill()
        killed = {0: [-9, 1], 2: [1, -9], 3: [1, 1]}
        assert [node.wait(DEADLINE_S) for node in nodes] == killed[rank], machines.logs()
        nodes = [machines.start(0), again or machines.start(1)]
    machines.wait_until_joined(len(VICTIMS) + 1)
    nodes[1].terminate()
    assert [node.wait(DEADLINE_S) for node in nodes] == [0, 0], machines.logs()
    # Node 0 was told of the signal that came to node 1. A child dies with its first process, and may say nothing more.
    left = {line["rank"]: line["signalled"] for line in machines.lives("left") if line["rank"] in (0, 2)}
    assert left == {0: True, 2: True}, machines.logs()


def test_a_machine_that_waits_for_others_says_for_whom_and_ends_in_time(tmp_path):
    alone = [Machines(tmp_path / str(node), rendezvous_timeout_s=3.0) for node in (0, 1)]
    try:
        processes = [machines.start(node) for node, machines in enumerate(alone)]
        assert [process.wait(DEADLINE_S) for process in processes] == [1, 1]
        waited = "waited 3 s (trainer.rendezvous_timeout_s) for node 1 of 2 to come"
        assert waited in alone[0].log(0).read_text()
        assert f"for node 0 at {alone[1].rendezvous}" in alone[1].log(1).read_text()
    finally:
        for machines in alone:
            machines.close()
