"""The annotators' page of one run directory, as `headrace annotate` starts it."""

import time
from pathlib import Path

import httpx

from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.supervisor.once import child_environment, python
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import make_tokens, token_of
from headrace.wire.config.settings import RunTable
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.layout import RunPaths
from tests.e2e.dashboard.shown import DEADLINE_S, Shown
from tests.http_tokens import remember
from tests.warm.start import start


class Served(Shown):
    """Started and killed by hand; keeps its port."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        make_tokens(RunPaths(run_dir).tokens)
        remember(self.url, token_of(RunPaths(run_dir).tokens, Role.ANNOTATOR))
        (run_dir / "config").mkdir(exist_ok=True)
        settings = OrchestratorSettings(run=RunTable(id="judged"), run_dir=run_dir)
        (run_dir / "config" / "orchestrator.json").write_text(settings.model_dump_json())
        (run_dir / "config" / "run.toml").write_text('[run]\nid = "judged"\n')

    def start(self, *, wait: bool = True) -> None:
        config = str(self.run_dir / "config" / "orchestrator.json")
        argv = python("headrace.services.orchestrator", "--annotate", "--config", config, "--port", str(self.port))
        with (self.run_dir / "dashboard.log").open("ab") as log:
            self._child = start(argv, env=child_environment(inherited(), threads=1), out=log, err=log)
        end = time.monotonic() + DEADLINE_S
        while wait and not self._is_ready():
            assert self._child.poll() is None and time.monotonic() < end, self.logs()
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False
