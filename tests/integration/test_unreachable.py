"""A service that cannot reach a peer says so within ten seconds: in its log, and in the status of the run."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.inspect.status import look_where
from headrace.wire.access.roles import Role
from headrace.wire.rundir.layout import RunPaths
from tests.e2e.apart import Apart
from tests.e2e.harness import TinyRun
from tests.ports import free_port
from tests.valkey import Valkey
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    server = Valkey(tmp_path / "server")
    server.start()
    made = Apart(TinyRun(tmp_path / "tiny", steps=2, replicas=1), tmp_path)
    port = free_port()
    made.prepare_for(server.url, "--broker.connect_timeout_s=5", orchestrator=f"127.0.0.1:{port}", port=port)
    yield made
    made.close()
    server.stop()


def told(apart: Apart, service: str) -> list[dict[str, Any]]:
    """Lines of its log about peers that it does not reach."""
    lines = (json.loads(line) for line in apart.log(service).read_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == "peer_unreachable"]


def test_trainer_and_replica_report_an_unreachable_orchestrator_in_log_and_status(apart: Apart) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        silent, refusing = f"127.0.0.1:{mute.getsockname()[1]}", f"127.0.0.1:{free_port()}"
        apart.spawn("orchestrator", {})
        apart.spawn("trainer", {"HEADRACE_ORCHESTRATOR_ADDRESS": silent})
        apart.spawn("rollout", {"HEADRACE_ORCHESTRATOR_ADDRESS": refusing})
        for service, address in (("trainer", silent), ("rollout", refusing)):
            until(lambda service=service: told(apart, service), f"a line of {service}", 120)
            (line, *_) = told(apart, service)
            assert (line["peer"], line["address"]) == ("orchestrator", address)
            assert line["error"] and line["seconds"] < 10
        run_dir = apart.run.run_dir
        (serving,) = [line for line in apart.log("orchestrator").read_text().splitlines() if '"serving"' in line]
        url = f"http://127.0.0.1:{json.loads(serving)['http_port']}"
        shown = look_where(None, url, RunPaths(run_dir).tokens / Role.VIEWER)
        said = {party.who: party.in_words(time.time()) for party in shown.waits}
        assert said["trainer"].startswith(f"waits for the orchestrator at {silent} (")
        assert f"waits for the orchestrator at {refusing} (" in said["rollout-0"] and "refused" in said["rollout-0"]


def test_a_service_reports_an_unreachable_broker_before_it_gives_up(apart: Apart) -> None:
    apart.spawn("reward", {"HEADRACE_BROKER__URL": f"redis://:secret@127.0.0.1:{free_port()}/0"})
    assert apart.processes["reward"].wait(120) != 0
    (line, *_) = told(apart, "reward")
    assert line["peer"] == "broker" and "127.0.0.1" in line["address"] and "secret" not in line["address"]
