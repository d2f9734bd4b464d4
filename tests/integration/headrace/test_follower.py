"""`headrace train` on a machine that its launcher has placed behind machine 0: how it waits, and how it ends."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.services.trainer.config.stage import StageSettings
from headrace.supervisor.lock import RunLock
from headrace.wire.rundir.layout import RunPaths
from tests.ports import free_port
from tests.waiting import until
from tests.warm.start import Process, python, start

WAITS = "does not listen at"
STARTED = "trainer-node-1 starting"


def follower(folder: Path, port: int, heard: str, then: Callable[[Process], object]) -> tuple[int, str]:
    """Exit status and output of machine 1 of two; `then` is done once it has said `heard`."""
    run, table = RunPaths(folder / "run"), {"ranks": 2, "nodes": 2, "rendezvous": f"127.0.0.1:{port}"}
    run.config.mkdir(parents=True, exist_ok=True)
    run.run_toml.write_text('[run]\nstage = "sft"\n[data]\npath = "a.jsonl"\n[trainer]\nranks = 2\nnodes = 2\n')
    settings = StageSettings.model_validate({"run": {"stage": "sft"}, "trainer": table})
    run.settings("trainer").write_text(settings.model_dump_json())
    command = python("headrace", "train", run.run_toml, "--run-dir", run.path)
    env = {**os.environ, "HEADRACE_NODE": "1", "HEADRACE_RENDEZVOUS": f"127.0.0.1:{port}"}
    log = folder / "log"
    with log.open("wb") as out:
        process = start(command, out=out, err=out, env=env)
    try:
        until(lambda: heard in log.read_text(), heard, detail=log.read_text)
        then(process)
        return process.wait(120), log.read_text()
    finally:
        process.kill()


def test_it_ends_when_machine_0_ends_before_its_trainer_listens(tmp_path: Path) -> None:
    machine_0 = RunLock(tmp_path / "run")
    status, said = follower(tmp_path, free_port(), WAITS, lambda _: machine_0.release())
    assert status == 0 and "has ended before its trainer listened" in said


@pytest.mark.parametrize("heard", [WAITS, STARTED])
def test_its_stop_leaves_the_exit_status_to_machine_0(tmp_path: Path, heard: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1] if heard == STARTED else free_port()
        status, said = follower(tmp_path, port, heard, lambda process: process.terminate())
    assert status == 0 and ("trainer-node-1 stopped" in said) is (heard == STARTED), said
