"""A real Prometheus on a real run, from its start: panels and rules return data, alerts tell a fault from none."""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tests.e2e.harness import TinyRun
from tests.integration.metrics.expressions import measured
from tests.integration.metrics.prometheus import Prometheus, program, prometheus, promtool
from tests.integration.metrics.replayed import of_a_gpu, replayed, served
from tests.waiting import until

DEADLINE_S = 150.0
SERVICES = ("orchestrator", "rollout", "reward", "trainer")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    program("prometheus")
    tiny = TinyRun(tmp_path_factory.mktemp("run") / "tiny", steps=100_000, staleness=1, deterministic=False)
    tiny.start()
    try:
        tiny.wait_until(lambda: len(addresses(tiny)["rollout"]) == 2, "the settings of all services")
        yield tiny
    finally:
        tiny.close()


@pytest.fixture(scope="module")
def server(run: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    targets = addresses(run)
    with served(replayed("tiny", "rollout-0")) as address, served(of_a_gpu()) as gpu:
        targets["rollout"].append(address)
        targets["gpu"] = [gpu]
        with prometheus(tmp_path_factory.mktemp("prometheus"), targets) as running:
            yield running


def addresses(run: TinyRun) -> dict[str, list[str]]:
    """Service -> host:port of its processes."""
    found: dict[str, list[str]] = {service: [] for service in SERVICES}
    for path in sorted((run.run_dir / "config").glob("*.json")):
        service = path.stem.partition("-")[0]
        if service in found:
            found[service].append(f"127.0.0.1:{json.loads(path.read_text())['http_port']}")
    return found


def test_every_expression_returns_data(server: Prometheus) -> None:
    left = measured()
    end = time.monotonic() + DEADLINE_S
    while left and time.monotonic() < end:
        left = [(where, expr) for where, expr in left if not server.query(expr)]
        time.sleep(0.5)
    assert not left


def test_no_rule_fails_and_alerts_fire_for_a_service_that_is_frozen_and_for_nothing_else(
    server: Prometheus, run: TinyRun
) -> None:
    rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
    assert rules and not [rule["name"] for rule in rules if rule["health"] != "ok"]
    run.wait_for_step(20)
    # The replayed GPU has had an error.
    planted = {("HeadraceGpuError", "gpu")}
    assert _fired(server) == planted
    os.kill(run.pid("reward-0"), signal.SIGSTOP)
    try:
        until(lambda: _fired(server) != planted, "an alert", DEADLINE_S)
        assert _fired(server) == planted | {("HeadraceTargetDown", "reward")}
    finally:
        run.go_on("reward-0")


def _fired(server: Prometheus) -> set[tuple[str, str]]:
    """Name and service of every alert that has fired since the run began."""
    found = server.query('max_over_time(ALERTS{alertstate="firing"}[1h])')
    return {(one["metric"]["alertname"], one["metric"].get("service", "")) for one in found}


@pytest.mark.parametrize("service", SERVICES)
def test_promtool_accepts_the_metrics_of_every_service(run: TinyRun, service: str) -> None:
    for address in addresses(run)[service]:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert not promtool("check", "metrics", stdin=text).strip()
        samples = [line for line in text.splitlines() if not line.startswith("#")]
        assert all('run="tiny"' in line and f'replica="{service}-' in line for line in samples)


def test_no_process_exposes_a_thousand_samples(server: Prometheus) -> None:
    """Labels are bounded: a process has hundreds of series, not thousands."""
    for found in server.query("scrape_samples_scraped"):
        assert float(found["value"][1]) < 1000, found
