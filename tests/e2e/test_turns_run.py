"""Trainer and engines share their GPUs by turns: the same weights as without, whoever is killed in whose turn."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.wire.rundir.events import read_events
from tests.armed import arm
from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 6
TURNS = ("--rollout.gpu-sharing", "turns")
Start = Callable[..., TinyRun]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[TinyRun] = []

    def begin(*arguments: str, replicas: int = 1, steps: int = STEPS, dies_in: int = 0) -> TinyRun:
        runs.append(TinyRun(tmp_path / f"run-{len(runs)}", steps=steps, replicas=replicas))
        if dies_in:
            runs[-1].environment = arm(tmp_path / "failpoints", "trainer.step.after_step", dies_in - 1)
        runs[-1].start(*arguments)
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def holder(run: TinyRun) -> str:
    """Who has the GPU; empty at the moment between two of them."""
    try:
        return str(json.loads((run.run_dir / "run" / "gpu-0.lock").read_text())["owner"])
    except (OSError, ValueError):
        return ""


def freeze_in_its_turn(run: TinyRun) -> int:
    """Stops the trainer while it has the GPU; returns its pid."""
    run.wait_for_step(1)
    end = time.monotonic() + 100
    while True:
        pid = run.pid("trainer")
        os.kill(pid, signal.SIGSTOP)
        if holder(run) == "trainer" and asleep(run):
            return pid
        os.kill(pid, signal.SIGCONT)
        assert time.monotonic() < end, "the trainer had no turn" + run.logs()
        time.sleep(0.01)


def turns_of(run: TinyRun) -> list[str]:
    """What the engines of the run did, in order."""
    events = sorted(read_events(run.run_dir), key=lambda event: float(event["t"]))
    return [event["event"] for event in events if event["event"] in ("engine_asleep", "engine_awake")]


@pytest.mark.long
def test_gpu_turns_change_no_bit_when_a_process_is_killed_between_sleep_and_wake(start: Start) -> None:
    plain = start()
    plain.finish()
    weights = plain.check()["weights_sha256"]
    assert turns_of(plain) == []
    run = start(*TURNS, dies_in=4)
    trainer = freeze_in_its_turn(run)
    # The replica's next life finds the GPU taken, and does not start an engine on it before the trainer lets go.
    before = run.pid("rollout-0")
    run.kill("rollout-0")
    run.wait_until(lambda: run.pid("rollout-0") != before, "its next life")
    run.wait_until(lambda: "its turn on GPU 0" in waits_for(run), "the next life to wait")
    assert holder(run) == "trainer"
    run.kill("orchestrator")
    os.kill(trainer, signal.SIGCONT)
    line = run.finish()
    # It died once more with its step done and nothing published, while the engine slept.
    assert line["steps"] == STEPS
    assert run.check()["weights_sha256"] == weights
    assert sum(event["event"] == "incarnation_opened" for event in read_events(run.run_dir)) == 2
    assert {"engine_asleep", "engine_awake"} == set(turns_of(run))


def asleep(run: TinyRun) -> bool:
    return [one["state"] for one in run.status().get("replicas", [])] == ["sleeping"]


def waits_for(run: TinyRun, service: str = "rollout-0") -> str:
    """What the service says of its start."""
    try:
        port = json.loads((run.run_dir / "run" / f"{service}.json").read_text())["http_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return str(answer.read())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except (OSError, ValueError):
        return ""
