"""Totals of an engine become counters; a silent engine costs its own metrics only."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric

from headrace.services.rollout.engine_metrics import EngineMetrics, EngineReader
from headrace.services.rollout.engines.protocol import EngineStats
from headrace.wire.errors import TransientError
from headrace.wire.metrics import read_engine_metrics

STATS = EngineStats(
    groups=1,
    rollouts=4,
    generated_tokens=100,
    prompt_tokens=10,
    recomputed_tokens=5,
    decode_seconds=2.0,
    busy_seconds=3.0,
)


class Engine:
    """What `EngineReader` asks of one."""

    def __init__(self) -> None:
        self.away = True

    async def own_metrics(self, timeout_s: float) -> Sequence[Metric]:
        if self.away:
            raise TransientError("it does not answer")
        return read_engine_metrics("engine:load 1\n")


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def tokens() -> float:
    return value("headrace_rollout_tokens_total", kind="generated")


def test_what_came_since_the_last_reading_is_counted() -> None:
    metrics, before = EngineMetrics(), tokens()
    metrics.read(STATS)
    metrics.read(replace(STATS, generated_tokens=150, rollouts=2))
    assert tokens() == before + 150
    assert value("headrace_rollout_rollouts_in_flight") == 2


async def test_an_engine_that_does_not_answer_is_counted_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()
    reader = EngineReader(engine)  # type: ignore[arg-type]
    before = value("headrace_rollout_engine_reads_total", outcome="failed")
    assert [*await reader.read()] == [*await reader.read()] == []
    assert value("headrace_rollout_engine_reads_total", outcome="failed") == before + 2
    engine.away = False
    assert [family.name for family in await reader.read()] == ["engine:load"]
    said = capsys.readouterr()
    assert (said.out + said.err).count("engine_metrics_missing") == 1
