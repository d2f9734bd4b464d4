"""Polls the status of a run until it ends."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext

from rich.console import RenderableType
from rich.live import Live

from headrace.cli.common import json_line
from headrace.inspect.output import FAILED, FINISHED, Output
from headrace.inspect.screen import draw, eval_line, step_line
from headrace.inspect.status import RunLook, ended_in_words, view_of
from headrace.inspect.terminal import wrapping
from headrace.wire.errors import TransientError, WaitTimeoutError

_SILENCE_S = 60.0
"""The watch fails if the orchestrator does not answer for so long."""
_ENDS = {"finished": FINISHED, "failed": FAILED}


def watch(look: Callable[[], RunLook], output: Output, *, every_s: float) -> int:
    """Shows the status until the run has ended; returns the exit status. Raises WaitTimeoutError after long silence."""
    is_live = output.console.is_terminal and not output.json
    live = Live(console=wrapping(output.console), auto_refresh=False) if is_live else None
    with live if live is not None else nullcontext():
        answered = -math.inf
        while True:
            begin = time.monotonic()
            shown: RunLook | None
            try:
                shown = look()
                answered = begin
            except TransientError as error:
                if answered == -math.inf:
                    raise
                if begin - answered > _SILENCE_S:
                    raise WaitTimeoutError(f"the orchestrator to answer ({error})", _SILENCE_S) from error
                shown = None
            if shown is not None:
                _show(shown, live, output)
                if (ended := end_of(shown)) is not None:
                    return ended
            time.sleep(max(0.0, begin + every_s - time.monotonic()))


def end_of(shown: RunLook) -> int | None:
    """The exit status of a run that has ended; None while it goes on."""
    if shown.orchestrator and shown.orchestrator.state in _ENDS:
        return _ENDS[shown.orchestrator.state]
    return FINISHED if shown.supervisor is None and not shown.url else None


def _show(shown: RunLook, live: Live | None, output: Output) -> None:
    if output.json:
        output.result(json_line(shown.as_json()))
    elif live is None:
        output.say(line_of(shown, time.time()))
    else:
        live.update(_drawing(shown), refresh=True)


def _drawing(shown: RunLook) -> RenderableType:
    return draw(view_of(shown), shown.evals) if shown.orchestrator else line_of(shown, time.time())


def line_of(shown: RunLook, now: float) -> str:
    """Formats the status in one line: the step, its metrics, and every party that waits."""
    status = shown.orchestrator
    line = step_line({**shown.metrics, "step": shown.steps}, status)
    parts = [time.strftime("%H:%M:%S", time.localtime(now)), line]
    parts += [eval_line(row) for row in shown.evals[-1:]]
    if status is None:
        alive = shown.supervisor is not None
        missing = shown.refused or "the orchestrator does not answer yet"
        return "  ".join([*parts, shown.preparing or (missing if alive else ended_in_words(shown.run_dir))])
    waits = [f"{one.who} {one.in_words(status.now)}" for one in shown.waits if one.waits_for]
    return "  ".join([*parts, status.state, *waits])
