"""Whatever is done to the broker, to the processes or to the network of a live run, it ends in the same weights.

`make chaos` injects each fault several times, those of the network too, and writes what it has found; elsewhere each is
injected once, without the network's, of which `tests/chaos/proxy` has some.
"""

import multiprocessing
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.failpoints.armed_run import SCORED
from tests.chaos.failpoints.campaign import AT_ONCE, undisturbed
from tests.chaos.failpoints.results import RESULTS, Section, seed_of, write
from tests.chaos.faults.injected import NETWORK, behind_proxies, disturbed
from tests.chaos.faults.live import OF_SERVICES, OF_THE_BROKER

TIMES = 3 if RESULTS else 1
STEPS_EACH = 7
"""Steps that one fault may take of a run, with those until it has recovered."""
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3600)]


def drawn(names: Sequence[str], times: int, draw: random.Random) -> list[str]:
    found = list(names) * times
    draw.shuffle(found)
    return found


def test_no_fault_of_broker_processes_or_network_loses_or_doubles_a_group_or_changes_a_bit(tmp_path: Path) -> None:
    seed, began = seed_of(), time.monotonic()
    sys.stdout.write(f"HEADRACE_CHAOS_SEED={seed}\n")
    draw = random.Random(seed)
    broker, services = drawn([*OF_THE_BROKER], TIMES, draw), drawn([*OF_SERVICES], TIMES, draw)
    steps = STEPS_EACH * len(broker)
    crossed = [(name, border) for name, (borders, _) in NETWORK.items() for border in borders] if RESULTS else []
    draw.shuffle(crossed)
    crossed_steps = STEPS_EACH * len(crossed)
    with ProcessPoolExecutor(AT_ONCE, mp_context=multiprocessing.get_context("spawn")) as pool:
        # The longest first.
        struck = [pool.submit(behind_proxies, tmp_path / "network", crossed, crossed_steps)] if crossed else []
        struck.append(pool.submit(disturbed, tmp_path / "services", services, steps))
        struck.append(pool.submit(disturbed, tmp_path / "broker", broker, steps))
        plain = [pool.submit(behind_proxies, tmp_path / "between", [], crossed_steps)] if crossed else []
        plain += [pool.submit(undisturbed, tmp_path / "undisturbed", SCORED, steps=steps)] * 2
        found = [(run.result(), before.result()) for run, before in zip(struck, plain, strict=True)]
    outcomes = [after for after, _ in found]
    write("faults", Section(seed, time.monotonic() - began, outcomes))
    assert sum(len(one.strikes) for one in outcomes) == len(broker) + len(services) + len(crossed)
    for after, before in found:
        assert (after.lost, after.doubled) == (0, 0), after
        assert after.weights_sha256 == before.weights_sha256, f"other weights after {after}"
