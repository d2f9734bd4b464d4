"""HeadraceTargetDown on a real replica: an engine that loads for long is no reason, a process that is gone is."""

import signal
from pathlib import Path

import httpx
import pytest

from tests.integration.metrics.prometheus import Prometheus, program, prometheus
from tests.integration.rollout.test_starting import starting, torch_held
from tests.ports import free_port
from tests.valkey import Valkey
from tests.waiting import until

DEADLINE_S = 100.0
SCRAPES = 10
ALERT = 'ALERTS{alertname="HeadraceTargetDown", service="rollout"}'


def returns(server: Prometheus, expr: str, what: str) -> None:
    until(lambda: server.query(expr), what, DEADLINE_S, every_s=0.1, detail=lambda: f"{expr} returns nothing")


@pytest.mark.long
def test_a_replica_whose_engine_loads_is_up_and_one_that_is_gone_is_not(tmp_path: Path, valkey: Valkey) -> None:
    program("prometheus")
    folders = [tmp_path / name for name in ("replica", "prometheus")]
    for folder in folders:
        folder.mkdir()
    with (
        starting(folders[0], valkey, torch_held) as (process, port),
        prometheus(folders[1], {"rollout": [f"127.0.0.1:{port}"]}) as server,
    ):
        # It may be read once before the process has opened its port, within its first seconds.
        returns(server, 'up{service="rollout"} == 1', "it answers while its engine loads")
        answered = f'count_over_time((up{{service="rollout"}} == 1)[{SCRAPES}s:1s]) >= {SCRAPES}'
        returns(server, answered, "it goes on answering")
        ready = httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=10)
        assert ready.status_code == 503 and "the engine starts" in ready.json()["reason"]
        returns(server, 'headrace_rollout_state{state="starting"} == 1', "what it is doing is told")
        returns(server, f"absent({ALERT})", "no alert is pending or firing")

        process.send_signal(signal.SIGSTOP)
        returns(server, 'up{service="rollout"} == 0', "a frozen process is down")
        returns(server, ALERT, "the alert is pending")
        process.send_signal(signal.SIGCONT)
        returns(server, f"absent({ALERT})", "the alert is over when it answers again")

        process.kill()
        process.wait(60)
        returns(server, 'up{service="rollout"} == 0', "a dead process is down")
        returns(server, ALERT, "the alert is pending")


def test_whatever_service_does_not_answer_is_down(tmp_path: Path) -> None:
    program("prometheus")
    services = ("orchestrator", "rollout", "reward", "trainer")
    with prometheus(tmp_path, {service: [f"127.0.0.1:{free_port()}"] for service in services}) as server:
        returns(server, 'count(ALERTS{alertname="HeadraceTargetDown"}) == 4', "an alert for each is pending")
