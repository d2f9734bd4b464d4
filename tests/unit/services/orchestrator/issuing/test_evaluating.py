"""An evaluation, which steps wait for, tells its deadline while it is under way, and its end, however it ends."""

import time
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from headrace.services.orchestrator.issuing.evaluation import Evaluation
from tests.unit.services.orchestrator.issuing.test_issuer import ROWS, office


def operation() -> tuple[float, float]:
    labels = {"operation": "evaluation"}
    names = ("active", "until_timestamp_seconds")
    active, until = (REGISTRY.get_sample_value(f"headrace_orchestrator_operation_{name}", labels) for name in names)
    assert active is not None and until is not None
    return active, until


async def test_an_error_ends_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with office(tmp_path) as it:
        since, deadline_s = time.time(), it.settings.eval[0].deadline_s
        evaluation = Evaluation(it.settings, ROWS, it.store, it.broker, it.prompts)
        evaluation.start(0, 5)
        await it.until_issued(len(ROWS))
        active, until = operation()
        assert active == 1 and since + deadline_s <= until <= time.time() + deadline_s

        def fails(version: int) -> None:
            raise OSError("the database is gone")

        monkeypatch.setattr(it.store, "evaluated_prompts", fails)
        await evaluation.finished()
        active, until = operation()
        assert active == 0 and since <= until <= time.time()
        assert not evaluation.running and not evaluation.waiting_for
        assert evaluation._task is not None
        with pytest.raises(OSError, match="the database is gone"):
            evaluation._task.result()
