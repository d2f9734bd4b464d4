"""What belongs to a live run, and how to hold it still."""

import json
import time
from pathlib import Path

import psutil

from headrace.wire.rundir.layout import RunPaths
from tests.e2e.harness import TinyRun
from tests.verbs import said

_STILL_S = 5.0
"""Without a step in this time, the last batch before a pause is trained."""


def processes(run: TinyRun) -> list[psutil.Process]:
    """The supervisor of a live run, and all below it."""
    supervisor = psutil.Process(json.loads(RunPaths(run.run_dir).supervisor.read_text())["pid"])
    return [supervisor, *supervisor.children(recursive=True)]


def paused(run: TinyRun, token_file: Path) -> int:
    """Pauses the run, and waits until its last batch is trained; returns the steps so far."""
    said("pause", run.run_dir, "--token-file", token_file)
    seen = [(-1, 0.0)]

    def rests() -> bool:
        if run.steps() != seen[-1][0]:
            seen.append((run.steps(), time.monotonic()))
        return time.monotonic() - seen[-1][1] > _STILL_S

    run.wait_until(rests, "the last batch before the pause")
    return run.steps()


def resumed(run: TinyRun, token_file: Path) -> None:
    """Lifts the pause, and waits until it trains."""
    said("resume", run.run_dir, "--token-file", token_file)
    run.wait_for_step(run.steps() + 2)
