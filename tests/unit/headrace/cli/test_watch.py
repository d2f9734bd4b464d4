"""Watching ends with the run, and a run that cannot be reached is told."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from headrace.cli import watch as module
from headrace.cli.watch import end_of, line_of, watch
from headrace.inspect.status import RunLook
from headrace.run.execute import FAILED, FINISHED, Output
from headrace.wire.errors import TransientError, WaitTimeoutError
from tests.status import run_status


def look(state: str, step: int = 1, *, trainer: Mapping[str, Any] | None = None, **more: Any) -> RunLook:
    status = run_status(state=state, step=step, now=100.0, trainer=trainer or {})
    shown: dict[str, Any] = {"url": "http://x", "orchestrator": status, "steps": step, "metrics": {}, "evals": []}
    return RunLook(**shown | more)


def output(*, as_json: bool = False) -> tuple[Output, io.StringIO]:
    text = io.StringIO()
    return Output(Console(file=text, width=200), as_json), text


def test_it_ends_when_the_run_has_ended() -> None:
    looks = iter([look("running"), look("running", 2), look("finished", 2)])
    out, text = output()
    assert watch(lambda: next(looks), out, every_s=0.01) == FINISHED
    lines = text.getvalue().splitlines()
    assert len(lines) == 3 and "step 2" in lines[1] and lines[2].endswith("finished")


def test_a_failed_run_is_a_failure_and_an_ended_supervisor_an_end() -> None:
    assert end_of(look("failed")) == FAILED
    assert end_of(look("running")) is None
    assert end_of(look("running", url="", supervisor=12)) is None
    assert end_of(look("running", url="", orchestrator=None)) == FINISHED


def test_an_orchestrator_that_is_away_for_a_moment_is_waited_for() -> None:
    steps = iter(["look", "away", "away", "end"])

    def look_or_fail() -> RunLook:
        step = next(steps)
        if step == "away":
            raise TransientError("no answer")
        return look("running" if step == "look" else "finished")

    assert watch(look_or_fail, output()[0], every_s=0.01) == FINISHED


def test_one_that_never_answered_is_told_at_once() -> None:
    def fail() -> RunLook:
        raise TransientError("no answer")

    with pytest.raises(TransientError):
        watch(fail, output()[0], every_s=0.01)


def test_long_silence_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SILENCE_S", 0.05)
    answers = iter([look("running")])

    def look_once() -> RunLook:
        for answer in answers:
            return answer
        raise TransientError("no answer")

    with pytest.raises(WaitTimeoutError, match="the orchestrator to answer"):
        watch(look_once, output()[0], every_s=0.01)


def test_json_is_one_object_a_look(capsys: pytest.CaptureFixture[str]) -> None:
    looks = iter([look("running"), look("finished")])
    watch(lambda: next(looks), output(as_json=True)[0], every_s=0.01)
    states = [json.loads(line)["orchestrator"]["state"] for line in capsys.readouterr().out.splitlines()]
    assert states == ["running", "finished"]


def test_a_line_tells_numbers_and_who_waits() -> None:
    evals = [{"version": 2, "accuracy": 0.25, "prompts": 8}]
    trainer = {"waiting_for": "a batch for step 4", "waiting_since": 90.0}
    shown = look("running", 3, trainer=trainer, metrics={"reward_mean": 0.5}, evals=evals)
    line = line_of(shown, 100.0)
    for part in ("step 3", "reward 0.500", "held-out accuracy 25.0%", "trainer waits for a batch for step 4", "10 s"):
        assert part in line, line
    assert line_of(replace(shown, orchestrator=None, supervisor=7), 100.0).endswith("does not answer yet")
