"""Puts the whole status together from what a live or an ended run knows."""

import time
from pathlib import Path

import numpy as np

from headrace.services.orchestrator.dashboard.bottleneck import bottleneck
from headrace.services.orchestrator.dashboard.readers.numbers import MetricRows
from headrace.wire.api.model import Metrics
from headrace.wire.api.status import OperatorStatus, RunIdentity, RunProgress, RunStatus
from headrace.wire.rundir.metrics import TIME

_STEPS = 20
"""Newest steps whose median time is that of a step."""


def run_identity(run_dir: Path, run_id: str, began: float | None, ended: float | None = None) -> RunIdentity:
    """The `run` object of the status."""
    return RunIdentity(id=run_id, run_dir=str(run_dir), name=run_dir.resolve().name, began=began, ended=ended)


def whole_status(
    progress: RunProgress, run: RunIdentity, operator: OperatorStatus, rows: MetricRows, averages: Metrics
) -> RunStatus:
    """Adds run, operator requests, time and bottleneck, and a step's time from `rows`; unset fields stay unset."""
    known = {name: getattr(progress, name) for name in progress.model_fields_set}
    limit = bottleneck(progress, paused=operator.paused)
    return RunStatus(
        **known, run=run, operator=operator, now=round(time.time(), 3), bottleneck=limit, averages=averages,
        step_seconds=step_seconds(rows),
    )  # fmt: skip


def step_seconds(rows: MetricRows) -> float | None:
    """Median seconds from step to step of the newest steps; None where fewer than two are known."""
    times = rows.columns.get(TIME, np.empty(0))[-_STEPS - 1 :]
    between = np.diff(times) / np.diff(rows.steps[-len(times) :]) if len(times) > 1 else np.empty(0)
    known = between[~np.isnan(between)]
    return round(float(np.median(known)), 6) if len(known) else None
