"""The annotators' page of one run directory, as `headrace annotate` starts it."""

import signal
import time
from pathlib import Path

import httpx

from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.supervisor.once import child_environment, python
from headrace.supervisor.ports import pick_ports
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import make_tokens, token_of
from headrace.wire.config.settings import RunTable
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.layout import RunPaths
from tests.http_tokens import remember
from tests.warm.start import Process, start


class Served:
    """Started and killed by hand; keeps its port."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.port = run_dir, pick_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._child: Process | None = None
        make_tokens(RunPaths(run_dir).tokens)
        remember(self.url, token_of(RunPaths(run_dir).tokens, Role.ANNOTATOR))
        (run_dir / "config").mkdir(exist_ok=True)
        settings = OrchestratorSettings(run=RunTable(id="judged"), run_dir=run_dir)
        (run_dir / "config" / "orchestrator.json").write_text(settings.model_dump_json())
        (run_dir / "config" / "run.toml").write_text('[run]\nid = "judged"\n')

    def start(self) -> None:
        config = str(self.run_dir / "config" / "orchestrator.json")
        argv = python("headrace.services.orchestrator", "--annotate", "--config", config, "--port", str(self.port))
        with (self.run_dir / "log").open("ab") as log:
            self._child = start(argv, env=child_environment(inherited(), threads=1), out=log, err=log)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self._child.poll() is None, (self.run_dir / "log").read_text()
            try:
                if httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError((self.run_dir / "log").read_text())

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        self._child.wait(60)

    def stop(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(60)
