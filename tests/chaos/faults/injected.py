"""Runs into which one fault after the other is injected, each once the run has recovered from the last."""

import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.failpoints.armed_run import SCORED, ArmedRun
from tests.chaos.failpoints.campaign import Outcome, Strike
from tests.chaos.failpoints.verdicts import lost_and_doubled
from tests.chaos.faults.live import OF_SERVICES, OF_THE_BROKER
from tests.chaos.proxy.between import BROKER, JUDGE, ORCHESTRATOR, Between
from tests.chaos.proxy.faults import BlackHole, Cut, Delay, Duplicate, Fault, Hold, Refuse, Reset, Throttle

FURTHER = 2
"""Steps that are trained before a run counts as recovered."""
NETWORK_S = 6.0
"""Beyond a replica's lease (4 s), the broker's (3 s), a command's answer (5 s) and a try of the judge's (2 s)."""
BORDERS = (BROKER, ORCHESTRATOR, JUDGE)
NETWORK: dict[str, tuple[tuple[str, ...], Fault]] = {
    "connections refused": (BORDERS, Refuse()),
    "connections reset": (BORDERS, Reset()),
    "connections cut within a frame": (BORDERS, Cut(1, 900)),
    "each byte 0.2 s late": (BORDERS, Delay(0.2)),
    "2,000 bytes a second": (BORDERS, Throttle(2000)),
    "a black hole": (BORDERS, BlackHole()),
    "a partition, whose bytes come afterwards": (BORDERS, Hold()),
    "each second request to the broker executed twice": ((BROKER,), Duplicate(2)),
}
"""Fault of a network -> the borders at which it may be, and what the proxy does there."""


def disturbed(folder: Path, faults: Sequence[str], steps: int) -> Outcome:
    """A run of `steps` steps under these faults of `live`, in order."""
    known = OF_THE_BROKER | OF_SERVICES
    armed, outcome = ArmedRun(folder, SCORED, steps), Outcome()
    armed.start()
    try:
        for name in faults:
            armed.wait_for_steps(1)
            began = time.monotonic()
            known[name](armed.run)
            armed.wait_for_steps(FURTHER)
            assert armed.lives, f"the run has ended within {name}"
            outcome.strikes.append(Strike(name=name, recovery_s=time.monotonic() - began))
        armed.hurry()
        armed.run.finish()
    finally:
        armed.run.close()
    verdict = armed.run.check()
    outcome.weights_sha256 = verdict["weights_sha256"]
    outcome.lost, outcome.doubled = lost_and_doubled(verdict["groups"], steps)
    return outcome


def behind_proxies(folder: Path, faults: Sequence[tuple[str, str]], steps: int) -> Outcome:
    """A run behind proxies, under these faults of NETWORK at these borders, in order; `Between` finds what is lost."""
    folder.mkdir(parents=True)
    run, outcome = Between(folder, steps=steps), Outcome()
    try:
        run.start()
        for name, border in faults:
            run.strike(border, NETWORK[name][1], NETWORK_S)
            lifted = time.monotonic()
            run.wait_for_steps(FURTHER)
            seconds = NETWORK_S + time.monotonic() - lifted
            outcome.strikes.append(Strike(name=f"network: {name}", recovery_s=seconds))
        outcome.weights_sha256 = run.finish()
    finally:
        run.close()
    return outcome
