"""The dashboard of one run directory as a process, read-only; killed and started again by hand, it keeps its port."""

import signal
import time
from pathlib import Path

import httpx

from headrace.supervisor.once import child_environment, python
from headrace.supervisor.ports import pick_ports
from headrace.wire.process.environment import inherited
from tests.http_tokens import bearer_of, made_for
from tests.warm.start import Process, start

DEADLINE_S = 60


class Shown:
    """Started by `start`."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.port = run_dir, pick_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._child: Process | None = None

    def start(self, *, wait: bool = True) -> None:
        argv = python("headrace.services.orchestrator.dashboard", str(self.run_dir), "--port", str(self.port))
        argv += ("--token-file", str(made_for(self.run_dir, self.url)))
        with (self.run_dir / "dashboard.log").open("ab") as log:
            self._child = start(argv, env=child_environment(inherited(), threads=1), out=log, err=log)
        end = time.monotonic() + DEADLINE_S
        while wait and not self._is_ready():
            assert self._child.poll() is None and time.monotonic() < end, self.logs()
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        """Whether all files that were there have been read."""
        try:
            url, headers = f"{self.url}/api/rollouts", bearer_of(self.url)
            found = httpx.get(url, params={"limit": 1}, headers=headers, trust_env=False, timeout=10)
        except httpx.TransportError:
            return False
        return found.status_code == 200 and not found.json()["reading"]

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        self._child.wait(60)

    def stop(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(60)

    def logs(self) -> str:
        return (self.run_dir / "dashboard.log").read_text()
