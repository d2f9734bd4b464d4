"""A run whose services reach each other through proxies, restarted as Compose does it (`restart: unless-stopped`)."""

import time
from pathlib import Path
from typing import Any

from headrace.wire.entry import REFUSED
from tests.chaos.proxy.faults import Fault
from tests.chaos.proxy.proxy import FaultProxy
from tests.e2e.apart import Apart
from tests.e2e.harness import TinyRun

DEADLINE_S = 180.0
_AGAIN_S = 0.5


class ProxiedRun(Apart):
    """The services of a run, and the proxies between them; nothing else supervises the processes."""

    def __init__(self, run: TinyRun, folder: Path, *, steps: int) -> None:
        super().__init__(run, folder)
        self.proxies: dict[str, FaultProxy] = {}
        self._steps = steps

    def spawn_all(self) -> None:
        for service in self.services:
            self.spawn(service, {})

    def strike(self, border: str, fault: Fault, seconds: float) -> None:
        """Waits for a further step, and sets a fault for some time."""
        self.wait_for_steps(1)
        self.proxies[border].set(fault)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.keep()
            time.sleep(0.1)
        hits = self.proxies[border].hits
        self.proxies[border].set(None)
        assert hits, f"{fault} met nothing at the border to the {border}"

    def wait_for_steps(self, more: int) -> None:
        """Until so many further steps are trained; services that end meanwhile are started again."""
        goal, end = self.run.steps() + more, time.monotonic() + DEADLINE_S
        while self.run.steps() < goal:
            assert self.processes["trainer"].poll() != 0, f"ended before step {goal}"
            assert time.monotonic() < end, f"waited {DEADLINE_S:g} s for step {goal}{self.logs()}"
            self.keep()
            time.sleep(0.05)

    def verdict(self) -> dict[str, Any]:
        """Waits for the trainer's end, ends the others; returns what `headrace check` said, which found all whole."""
        end = time.monotonic() + DEADLINE_S
        while self.processes["trainer"].poll() != 0:
            assert time.monotonic() < end, self.logs()
            self.keep()
            time.sleep(0.1)
        others = [process for service, process in self.processes.items() if service != "trainer"]
        for process in others:
            process.terminate()
        assert [process.wait(60) for process in others] == [0] * len(others), self.logs()
        found = self.run.check()
        groups = found["groups"]
        lost = groups["issued"] - groups["trained"] - sum(groups["dropped"].values()) - groups["open"]
        assert (lost, groups["trained"]) == (0, self._steps * 4), found
        return found

    def keep(self) -> None:
        """Starts services again that have ended; none may have refused its settings."""
        for service, process in self.processes.items():
            if process.poll() is not None and (service, process.returncode) != ("trainer", 0):
                assert process.returncode != REFUSED, self.log(service).read_text()[-2500:]
                time.sleep(_AGAIN_S)
                self.spawn(service, {})

    def close(self) -> None:
        super().close()
        for proxy in self.proxies.values():
            proxy.stop()
