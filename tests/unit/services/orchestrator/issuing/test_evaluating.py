"""An evaluation, which steps wait for, tells its deadline while it is under way, and its end, however it ends."""

import asyncio
import time
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from headrace.services.orchestrator.issuing.evaluation import Evaluation
from tests.unit.services.orchestrator.issuing.test_issuer import ROWS, Office, office


def operation() -> tuple[float, float]:
    labels = {"operation": "evaluation"}
    names = ("active", "until_timestamp_seconds")
    active, until = (REGISTRY.get_sample_value(f"headrace_orchestrator_operation_{name}", labels) for name in names)
    assert active is not None and until is not None
    return active, until


def begin(it: Office) -> Evaluation:
    evaluation = Evaluation(it.settings, ROWS, it.store, it.broker, it.prompts)
    evaluation.start(0, 5)
    return evaluation


async def under_way(it: Office, since: float) -> None:
    while len(await it.issued()) < len(ROWS):
        await asyncio.sleep(0.01)
    active, until = operation()
    deadline_s = it.settings.eval[0].deadline_s
    assert active == 1 and since + deadline_s <= until <= time.time() + deadline_s


def over(since: float) -> bool:
    active, until = operation()
    return active == 0 and since <= until <= time.time()


async def test_an_error_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with office(tmp_path) as it:
        since = time.time()
        evaluation = begin(it)
        await under_way(it, since)

        def fails(version: int) -> None:
            raise OSError("the database is gone")

        monkeypatch.setattr(it.store, "evaluated_prompts", fails)
        await evaluation.finished()
        assert over(since) and not evaluation.running and not evaluation.waiting_for
        assert evaluation._task is not None
        with pytest.raises(OSError, match="the database is gone"):
            evaluation._task.result()
