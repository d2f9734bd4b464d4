"""Metrics of an engine: counters from its stats, and the metrics that it exports itself."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client.metrics_core import Metric

from headrace.services.rollout import metrics
from headrace.services.rollout.engines.protocol import Engine, EngineStats
from headrace.wire.errors import HeadraceError
from headrace.wire.telemetry.logs import get_logger

log = get_logger("rollout.engine_metrics")

READ_S = 2.0
"""Timeout within a scrape: an engine that does not answer must not block the service's own metrics."""


class EngineMetrics:
    """Converts an engine's totals into counter increments."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def read(self, stats: EngineStats) -> None:
        """Adds the increase since the last reading. A total that fell belongs to a new engine."""
        counters = {
            "generated_tokens": metrics.TOKENS.labels("generated"),
            "prompt_tokens": metrics.TOKENS.labels("prompt"),
            "recomputed_tokens": metrics.TOKENS.labels("recomputed"),
            "decode_seconds": metrics.DECODE_SECONDS,
            "busy_seconds": metrics.BUSY_SECONDS,
        }
        for name, counter in counters.items():
            total, before = float(getattr(stats, name)), self._last.get(name, 0.0)
            counter.inc(total - before if total >= before else total)
            self._last[name] = total
        metrics.IN_FLIGHT_ROLLOUTS.set(stats.rollouts)


@contextmanager
def timed(phase: str) -> Iterator[None]:
    """Records the duration of a phase of a weight update, and whether it failed."""
    begin, outcome = time.perf_counter(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        metrics.UPDATE_SECONDS.labels(phase, outcome).observe(time.perf_counter() - begin)


class EngineReader:
    """Reads the metrics that the engine exports itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._silent = False

    async def read(self) -> Iterable[Metric]:
        """The engine's own metrics; none if it does not answer in time."""
        try:
            found = await self._engine.own_metrics(READ_S)
        except HeadraceError as error:
            if not self._silent:
                log.warning("engine_metrics_missing", reason=str(error))
            self._silent = True
            metrics.ENGINE_READS.labels("failed").inc()
            return ()
        self._silent = False
        metrics.ENGINE_READS.labels("read").inc()
        return found
