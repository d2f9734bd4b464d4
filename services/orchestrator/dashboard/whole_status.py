"""Puts the whole status together from what a live or an ended run knows."""

import time
from pathlib import Path

from headrace.services.orchestrator.dashboard.bottleneck import bottleneck
from headrace.wire.api.status import OperatorStatus, RunIdentity, RunProgress, RunStatus


def run_identity(run_dir: Path, run_id: str, began: float | None) -> RunIdentity:
    """The `run` object of the status."""
    return RunIdentity(id=run_id, run_dir=str(run_dir), name=run_dir.resolve().name, began=began)


def whole_status(progress: RunProgress, run: RunIdentity, operator: OperatorStatus) -> RunStatus:
    """Adds run, operator requests, time and bottleneck; fields that `progress` does not set stay unset."""
    known = {name: getattr(progress, name) for name in progress.model_fields_set}
    limit = bottleneck(progress, paused=operator.paused)
    return RunStatus(**known, run=run, operator=operator, now=round(time.time(), 3), bottleneck=limit)
