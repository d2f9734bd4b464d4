"""The real trainer on two machines: every machine answers the same probes, and a signal to any one stops all."""

import signal
import subprocess
import sys
from contextlib import ExitStack

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.services.trainer.service import SERVICE_NAME
from tests.integration.trainer.harness import settings_for
from tests.integration.trainer.test_stopped_code import until_it_waits_for_the_orchestrator
from tests.ports import free_port

SERVING = health_pb2.HealthCheckResponse.SERVING


def start(folder, settings, node, stack):
    config = folder / f"trainer-{node}.json"
    config.write_text(settings.model_copy(update={"node": node}).model_dump_json())
    command = [
        sys.executable,
        "-P",
        "-m",
        "headrace.services.trainer",
        "--config",
        str(config),
        "--stopped-code",
        "143",
    ]
    log = stack.enter_context((folder / f"log-{node}").open("w"))
    process = stack.enter_context(subprocess.Popen(command, stderr=log, stdout=log))
    stack.callback(process.kill)
    return process


def health(port, service):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return health_pb2_grpc.HealthStub(channel).Check(request, timeout=20).status


@pytest.mark.long
def test_a_signal_to_the_second_machine_stops_both_with_the_code_that_was_asked_for(tmp_path):
    table = {"ranks": 2, "nodes": 2, "rendezvous": f"127.0.0.1:{free_port()}", "orchestrator_timeout_s": 300.0}
    ports = [(free_port(), free_port()) for _ in range(2)]
    settings = [
        settings_for(tmp_path, steps=2, **table).model_copy(
            update={"orchestrator_address": "127.0.0.1:9", "http_port": http, "grpc_port": rpc}
        )
        for http, rpc in ports
    ]
    with ExitStack() as stack:
        processes = [start(tmp_path, settings[node], node, stack) for node in (0, 1)]
        until_it_waits_for_the_orchestrator(ports[0][0], 150)
        http, rpc = ports[1]
        assert httpx.get(f"http://127.0.0.1:{http}/readyz", timeout=20, trust_env=False).json() == {"status": "ready"}
        assert "python_info" in httpx.get(f"http://127.0.0.1:{http}/metrics", timeout=20, trust_env=False).text
        assert health(rpc, "") == health(rpc, SERVICE_NAME) == SERVING
        assert health(ports[0][1], SERVICE_NAME) != SERVING
        processes[1].send_signal(signal.SIGTERM)
        assert [process.wait(120) for process in processes] == [143, 143]
    assert '"told_by": "node 1"' in (tmp_path / "log-0").read_text()
