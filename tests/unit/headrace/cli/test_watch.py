"""Watching ends with the run, and a run that cannot be reached is told."""

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from headrace.cli.watch import end_of, watch
from headrace.inspect.output import FAILED, FINISHED, Output
from headrace.inspect.status import RunLook
from headrace.wire.errors import TransientError
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
