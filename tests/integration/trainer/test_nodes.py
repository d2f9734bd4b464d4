"""A trainer over two machines of two ranks: they meet, live and die together, and meet again."""

import os
import subprocess
import sys

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

    def close(self):
        for process in self.processes:
            for child in psutil.Process(process.pid).children() if process.poll() is None else []:
                child.kill()
            process.kill()
            process.wait(10)


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
