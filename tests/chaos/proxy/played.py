"""A run of episodes whose environment worker reaches the replica, and it alone, through a proxy.

gRPC's own variables lead there, which the worker obeys by `site/sitecustomize.py` alone: its channels go by CONNECT
through `grpc_proxy`, except those to the host that `no_grpc_proxy` names. The orchestrator has that name, the replica
is announced by its address.
"""

import time
from pathlib import Path

import pytest

from tests.chaos.proxy.faults import BlackHole, Cut, Fault, Refuse, Reset
from tests.chaos.proxy.proxied import DEADLINE_S, ProxiedRun
from tests.chaos.proxy.proxy import FaultProxy
from tests.e2e.episodes import played_run
from tests.ports import free_port
from tests.shared import made_once
from tests.valkey import Valkey

TURNS, ENVIRONMENT = "turns", "environment"
STEPS = 10
BREAKING = (Refuse, Reset, Cut, BlackHole)
"""Faults after which a turn has to be asked for again: its answer is lost, or it cannot be asked for."""
_ENDURED_S = 2.5
"""For which a fault stays, at least: beyond the pause before a replica that did not answer is asked again (1 s)."""
_WEIGHTS = "weights"
_SITE = str(Path(__file__).parent / "site")


class PlayedBetween(ProxiedRun):
    """The run, its broker, and the proxy between the worker's turns and the replica."""

    def __init__(self, folder: Path, *, steps: int = STEPS) -> None:
        self._orchestrator = free_port()
        proxy = FaultProxy(None)
        leads = {"grpc_proxy": f"http://127.0.0.1:{proxy.port}", "no_grpc_proxy": "localhost", "PYTHONPATH": _SITE}
        run = played_run(folder / "tiny", steps=steps)
        super().__init__(run, folder, steps=steps, plays=True, variables={ENVIRONMENT: leads})
        self.proxies = {TURNS: proxy}
        self.valkey = Valkey(folder / "valkey")

    def start(self, *arguments: str) -> None:
        """Starts everything; `arguments` are more settings of the run."""
        self.valkey.start()
        self.proxies[TURNS].start()
        orchestrator = f"localhost:{self._orchestrator}"
        self.prepare_for(self.valkey.url, *arguments, orchestrator=orchestrator, port=self._orchestrator)
        self.spawn_all()

    def disturb(self, fault: Fault) -> int:
        """Waits for a further step, and lets a fault meet turns; returns how often it met something.

        One that breaks connections is repeated until a turn had to be asked for again: it may have met an idle one.
        """
        self.wait_for_steps(1)
        end, before, hits = time.monotonic() + DEADLINE_S, self.asked_again(), 0
        while not hits or (isinstance(fault, BREAKING) and self.asked_again() == before):
            hits, goal = self._met(fault, end), self.run.steps() + 1
            # What goes on to a further step was not asked for again.
            while isinstance(fault, BREAKING) and self.asked_again() == before and self.run.steps() < goal:
                self._go_on(end, f"a turn to be asked for again after {fault}")
        return hits

    def _met(self, fault: Fault, end: float) -> int:
        """Sets a fault until it has met something, and for `_ENDURED_S`; returns how often it did."""
        proxy, lifted = self.proxies[TURNS], time.monotonic() + _ENDURED_S
        proxy.set(fault)
        while not proxy.hits or time.monotonic() < lifted:
            self._go_on(end, f"{fault} to meet a turn")
        hits = proxy.hits
        proxy.set(None)
        return hits

    def asked_again(self) -> int:
        """Turns that the worker has asked for again so far."""
        return self.log(ENVIRONMENT).read_text().count('"turn_again"')

    def is_apart(self) -> bool:
        """Whether turns have crossed the proxy, and no call of the orchestrator."""
        asked = self.proxies[TURNS].asked
        return bool(asked) and self._orchestrator not in asked

    def _go_on(self, end: float, what: str) -> None:
        assert time.monotonic() < end, f"waited {DEADLINE_S:g} s for {what}{self.logs()}"
        assert self.processes["trainer"].poll() != 0, f"the run ended before {what}"
        self.keep()
        time.sleep(0.05)

    def close(self) -> None:
        super().close()
        self.valkey.stop()


def undisturbed_weights(factory: pytest.TempPathFactory) -> str:
    """Those of the same run under `headrace train`, without a proxy; made once for all workers of a session."""
    return (made_once(factory, "played-between", _make) / _WEIGHTS).read_text()


def _make(folder: Path) -> None:
    run = played_run(folder, steps=STEPS)
    run.start()
    try:
        run.finish()
    finally:
        run.close()
    (folder / _WEIGHTS).write_text(run.check()["weights_sha256"])
