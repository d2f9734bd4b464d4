"""A trainer that is moved away says so by its exit code: whoever takes 0 for the end of the run must not see one."""

import signal
import subprocess
import sys
import time

import httpx
import pytest

from tests.integration.trainer.harness import settings_for
from tests.ports import free_port


def until_it_waits_for_the_orchestrator(port: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    doing = ""
    while "orchestrator" not in doing:
        assert time.monotonic() < end, doing
        time.sleep(0.1)
        try:
            doing = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=2, trust_env=False).json().get("reason", "")
        except httpx.TransportError as error:
            doing = repr(error)


@pytest.mark.long
def test_a_signal_before_the_last_step_ends_it_with_the_code_that_was_asked_for(tmp_path):
    port = free_port()
    settings = settings_for(tmp_path, steps=2, ranks=2, orchestrator_timeout_s=300.0).model_copy(
        update={"orchestrator_address": "127.0.0.1:9", "http_port": port}
    )
    config = tmp_path / "trainer.json"
    config.write_text(settings.model_dump_json())
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
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stderr=log) as trainer:
        try:
            until_it_waits_for_the_orchestrator(port, 150)
            trainer.send_signal(signal.SIGTERM)
            assert trainer.wait(90) == 143
        finally:
            trainer.kill()
    # Its children leave in peace.
    assert "rank_lost" not in (tmp_path / "log").read_text()
