"""Services of a tiny run as something else starts them, each a process with settings of its own."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from headrace.wire.process.environment import NAMES
from headrace.wire.rundir.layout import RunPaths
from tests.e2e.harness import TinyRun
from tests.verbs import said
from tests.warm.start import Process, python, start


class Apart:
    """A run that `headrace prepare` made, and one process of each service, whose logs are in `folder`."""

    def __init__(self, run: TinyRun, folder: Path, *, plays: bool = False) -> None:
        """`plays`: the rows are played."""
        self.run, self.folder = run, folder
        self.services = ("orchestrator", "trainer", "rollout", "reward", *(("environment",) if plays else ()))
        self.processes: dict[str, Process] = {}

    def prepare_for(self, broker: str, *arguments: str, orchestrator: str, port: int) -> str:
        """What `headrace prepare` said. A container has ports of its own; here they differ.

        `orchestrator`: the address that services call it by; `port`: the one that it listens on.
        """
        told = said(
            "prepare", self.run.folder / "run.toml", "--run-dir", self.run.run_dir, "--orchestrator", orchestrator,
            "--broker", broker, *arguments,
        )  # fmt: skip
        for service in self.services:
            path = RunPaths(self.run.run_dir).settings(service)
            settings = json.loads(path.read_text())
            listens = port if service == "orchestrator" else 0
            path.write_text(json.dumps(settings | {"grpc_port": listens, "http_port": 0, "announce": "127.0.0.1"}))
        return told

    def spawn(self, service: str, variables: Mapping[str, str]) -> None:
        """Starts a service's process with these variables of its own."""
        env = {name: value for name, value in os.environ.items() if name not in NAMES}
        settings = RunPaths(self.run.run_dir).settings(service)
        command = python(f"headrace.services.{service}", "--config", settings)
        with self.log(service).open("ab") as log:
            self.processes[service] = start(command, env=env | variables, out=log, err=log)

    def log(self, service: str) -> Path:
        return self.folder / f"{service}.log"

    def logs(self) -> str:
        return "".join(f"\n--- {service}\n{self.log(service).read_text()[-2500:]}" for service in self.processes)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(60)
