"""Faults of a live run other than a death: of its broker, of its processes. Each lasts its time and is lifted."""

import json
import os
import signal
import time
from collections.abc import Callable

import redis

from tests.e2e.harness import TinyRun

FROZEN_S = 20.0
"""Beyond the leases of replicas, claims and registrations (15 s), and within the supervisor's deadline (60 s)."""
BROKER_S = 8.0
"""Beyond the lease of a claim (3 s) and a command's answer (5 s)."""
Inject = Callable[[TinyRun], None]


def freeze(service: str, seconds: float) -> Inject:
    """SIGSTOP, and SIGCONT some seconds later; the process must live through it."""

    def inject(run: TinyRun) -> None:
        pid = run.pid(service)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert run.pid(service) == pid, f"{service} was started again within {seconds:g} s"

    return inject


def empty(run: TinyRun) -> None:
    """FLUSHALL while a scorer has a group: streams, groups and what consumers own are gone; the server lives."""
    with _broker(run) as broker:
        rollouts = "headrace:{tiny}:rollouts"
        run.wait_until(lambda: bool(broker.xpending(rollouts, "reward")["pending"]), "a group at the scorer")
        broker.flushall()


def fill(run: TinyRun) -> None:
    """`maxmemory` below what the server has: `OOM command not allowed` for every write, until it is lifted."""
    with _broker(run) as broker:
        broker.config_set("maxmemory", "1")
        try:
            time.sleep(BROKER_S)
        finally:
            broker.config_set("maxmemory", "0")
        refused = broker.info("errorstats").get("errorstat_OOM", {})
        assert refused, "no write met the full broker"


def cut_clients(run: TinyRun) -> None:
    """CLIENT KILL: the connections of all services end at once."""
    with _broker(run) as broker:
        killed = broker.client_kill_filter(_type="normal", skipme=True)
        assert killed, "no service was connected"


def kill_broker(run: TinyRun) -> None:
    """SIGKILL: it comes back with what its append-only file has."""
    run.kill("broker")


def _broker(run: TinyRun) -> "redis.Redis":
    url = json.loads((run.run_dir / "run" / "broker.json").read_text())["url"]
    return redis.Redis.from_url(url)


OF_THE_BROKER: dict[str, Inject] = {
    f"broker frozen for {BROKER_S:g} s (SIGSTOP)": freeze("broker", BROKER_S),
    "broker killed (SIGKILL)": kill_broker,
    "broker emptied (`FLUSHALL`)": empty,
    f"broker full for {BROKER_S:g} s (`maxmemory`)": fill,
    "all connections to the broker cut (`CLIENT KILL`)": cut_clients,
}
OF_SERVICES: dict[str, Inject] = {
    f"{service} frozen for {FROZEN_S:g} s (SIGSTOP)": freeze(instance, FROZEN_S)
    for service, instance in (
        ("trainer", "trainer"),
        ("orchestrator", "orchestrator"),
        ("replica", "rollout-0"),
        ("reward service", "reward-0"),
    )
}
