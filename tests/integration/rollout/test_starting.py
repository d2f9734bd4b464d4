"""A replica whose engine has not started: it answers over HTTP, is not ready and says why, and ends when it is told."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.services.rollout.replica.drain import drain_replica
from headrace.services.rollout.replica.http_server import ReplicaHttpServer
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from tests.ports import free_port
from tests.rollout_models import make_model, save_folder
from tests.valkey import Valkey
from tests.waiting import until


def sglang_that_loads_for_ever(folder: Path) -> dict[str, Any]:
    """The rollout table; its server's process id comes into `server`."""
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho $$ > {folder}/server\nexec sleep 600\n")
    python.chmod(0o755)
    return {"engine": "sglang", "sglang": {"venv": folder / "venv", "device": "cpu"}}


@contextmanager
def starting(folder: Path, valkey: Valkey) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The process and its HTTP port."""
    table = sglang_that_loads_for_ever(folder)
    port = free_port()
    settings = RolloutSettings.model_validate(
        {
            "run": {"id": "test"},
            "model": {"path": save_folder(make_model(), folder / "model")},
            "broker": {"url": valkey.url},
            "run_dir": folder,
            "http_port": port,
            "rollout": table,
        }
    )
    config = folder / "rollout-0.json"
    config.write_text(settings.model_dump_json())
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "headrace.services.rollout", "--config", str(config)],
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()


def until_it_says(process: "subprocess.Popen[bytes]", port: int, words: str, log: Path) -> None:
    end = time.monotonic() + 100
    said = ""
    while words not in said:
        assert process.poll() is None and time.monotonic() < end, f"{said!r} {log.read_text()}"
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=10)
            assert answer.status_code == 503
            said = answer.json()["reason"]
        except httpx.TransportError:
            pass
        time.sleep(0.05)


def test_a_replica_answers_while_its_engine_starts_and_stops_on_request(tmp_path: Path, valkey: Valkey) -> None:
    with starting(tmp_path, valkey) as (process, port):
        until_it_says(process, port, "starting: the engine starts: sglang (", tmp_path / "log")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as http:
            assert http.get("/healthz").status_code == 200
            state = 'headrace_rollout_state{replica="rollout-0",run="test",state="starting"} 1.0'
            assert state in http.get("/metrics").text
        # It holds nothing: whoever ends it need not wait.
        with pytest.raises(ConfigError, match=r"401 .*token"):
            drain_replica(port, seconds=0)
        token = (RunPaths(tmp_path).tokens / "rollout").read_text()
        assert drain_replica(port, seconds=0, headers=(("authorization", f"Bearer {token}"),)) == 0
        until((tmp_path / "server").exists)
        process.send_signal(signal.SIGTERM)
        # Its engine would be made for ten minutes.
        assert process.wait(100) == 0, (tmp_path / "log").read_text()
        server = Path("/proc") / (tmp_path / "server").read_text().strip()
        until(lambda: not server.exists())


async def test_a_replica_retired_before_its_start_takes_no_prompt() -> None:
    class Generator:
        in_flight = 3
        retired = False

        def retire(self) -> None:
            self.retired = True

    front, generator = ReplicaHttpServer(), Generator()
    front.retire()
    assert front.in_flight == 0
    front.has_started(None, generator)  # type: ignore[arg-type]
    assert generator.retired and front.in_flight == 3
    assert front.why_not_ready() == "draining: it takes no more prompts"


async def test_a_taken_port_is_refused_before_the_engine_starts(tmp_path: Path, valkey: Valkey) -> None:
    from headrace.services.rollout.app import serve
    from headrace.wire.http import admin_app, serve_http

    other = await serve_http(admin_app("other", lambda: None), "127.0.0.1", 0)
    settings = RolloutSettings.model_validate(
        {"model": {"path": tmp_path}, "broker": {"url": valkey.url}, "http_port": other.port}
    )
    with pytest.raises(ConfigError, match="http_port"):
        await asyncio.wait_for(serve(settings), 60)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)
    await other.stop()
