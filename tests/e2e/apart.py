"""Services of a tiny run as something else starts them, each a process with settings of its own."""

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED
from headrace.wire.environment import NAMES
from headrace.wire.rundir.layout import RunPaths
from tests.e2e.harness import DEADLINE_S, TinyRun
from tests.ports import free_port
from tests.verbs import said
from tests.warm.start import Process, python, start

_NOBODY = "http://127.0.0.1:9"
STEERING = {
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _NOBODY),
    **dict.fromkeys(("ALL_PROXY", "GRPC_PROXY", "no_grpc_proxy", "no_proxy", "NO_PROXY"), ""),
    **dict.fromkeys(("GRPC_POLL_STRATEGY", "GRPC_DNS_RESOLVER", "GRPC_SSL_CIPHER_SUITES"), "bogus"),
    **dict.fromkeys(
        ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"), "/nowhere"
    ),
    **dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "none0"),
    **{"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "9", "NCCL_COMM_ID": "192.0.2.1:9"},
    **{"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_USE_AGENT_STORE": "True"},
}
"""What Docker's client configuration, clusters and launchers give to containers: a way that leads nowhere."""


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


class ServicesApart(Apart):
    """Each service has only the secrets of its own role."""

    def __init__(self, run: TinyRun, secrets: Path, *, tls: Path, urls: Mapping[Role, str], plays: bool) -> None:
        """`tls`: certificates of all roles; `urls`: the broker's URL of each role, that of the operator too."""
        super().__init__(run, secrets, plays=plays)
        self.tls, self.urls = tls, urls

    def prepare(self) -> str:
        """What `headrace prepare` said."""
        port = free_port()
        return self.prepare_for(self.urls[Role.OPERATOR], orchestrator=f"127.0.0.1:{port}", port=port)

    def start(self, surroundings: Mapping[str, str] = MappingProxyType({})) -> None:
        """`surroundings`: variables of all services."""
        self.folder.mkdir()
        tokens = self.folder / "tokens"
        RunPaths(self.run.run_dir).tokens.rename(tokens)  # A secret: the run directory has none.
        for service in self.services:
            role, folder = Role(service), self.folder / service
            self._give(folder / "tokens", tokens / role, tokens / ACCEPTED)
            self._give(folder / "tls", *(self.tls / name for name in ("ca.pem", f"{role}.pem", f"{role}-key.pem")))
            (folder / "url").write_text(self.urls[role])
            own = {
                "HEADRACE_TOKENS": str(folder / "tokens"),
                "HEADRACE_TLS": str(folder / "tls"),
                "HEADRACE_BROKER__URL_FILE": str(folder / "url"),
            }
            self.spawn(service, own | surroundings)

    def _give(self, folder: Path, *files: Path) -> None:
        folder.mkdir(parents=True)
        for file in files:
            shutil.copy(file, folder)

    def wait_for_the_trainer(self) -> None:
        """Until the trainer of a finished run has ended by itself, with status 0."""
        end = time.monotonic() + DEADLINE_S
        while self.processes["trainer"].poll() is None:
            assert time.monotonic() < end, self.logs()
            for service, process in self.processes.items():
                assert service == "trainer" or process.poll() is None, f"{service} has ended{self.logs()}"
            time.sleep(0.2)
        assert self.processes["trainer"].returncode == 0, self.logs()
