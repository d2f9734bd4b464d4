"""Ended spans on their way out: the SDK's batch processor, with its losses counted and a deadline at its end.

`BatchSpanProcessor` starts its thread when it is made, drops the oldest span of a full queue with no more than a log
line, and may wait half a minute at its end. Here it is made with the first span (the trainer starts its other ranks
while it has no threads), its queue is never full, and it is left behind at the deadline.
"""

import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from headrace.wire.telemetry import get_logger
from headrace.wire.tracing import metrics

_EVERY_S = 0.5
_BATCH = 512
_SIZE = 4096
_CLOSE_S = 2.0
"""A process that is to end must end: at most so long for the last spans."""
log = get_logger("headrace.wire.tracing")


class Outbox(SpanProcessor):
    """Sends ended spans in batches, from one daemon thread. Taking a span never waits."""

    def __init__(
        self, open_exporter: Callable[[], SpanExporter], *, size: int = _SIZE, every_s: float = _EVERY_S
    ) -> None:
        """`open_exporter` is called once, by the thread. At most `size` spans are held."""
        self._exporter = _Exporter(open_exporter, self._settle)
        self._size, self._every_s = size, every_s
        self._batches: BatchSpanProcessor | None = None
        self._lock = threading.Lock()
        self._held = 0
        """Spans that were taken, and are neither exported nor dropped."""
        self._lost = 0
        self._is_failing = False
        self._closed = False

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span, or drops it where too many are held already."""
        with self._lock:
            has_room = self._held < self._size and not self._closed
            self._held += has_room
            if self._batches is None:
                self._batches = BatchSpanProcessor(
                    self._exporter,
                    max_queue_size=self._size,
                    schedule_delay_millis=self._every_s * 1000,
                    max_export_batch_size=min(_BATCH, self._size),
                )
        if has_room:
            self._batches.on_end(span)
        else:
            self._drop(1, "the queue is full")

    def shutdown(self) -> None:
        """Sends what is left, for two seconds at the most."""
        if self._batches is not None:
            end = threading.Thread(target=self._batches.shutdown, daemon=True)
            end.start()
            end.join(_CLOSE_S)
        with self._lock:
            self._closed = True
            left, self._held = self._held, 0
        if left:
            self._drop(left, "the process ends")
        if self._lost:
            log.warning("spans_dropped", count=self._lost)

    def _settle(self, count: int, reason: str) -> None:
        """`count` spans have been exported, or were not for `reason`."""
        with self._lock:
            if self._closed:
                return  # They are counted as dropped, and the process ends.
            self._held -= count
        if reason:
            self._drop(count, reason)
        else:
            metrics.EXPORTED.inc(count)
            self._is_failing = False

    def _drop(self, count: int, reason: str) -> None:
        """Counts dropped spans; logs a line once per outage."""
        self._lost += count
        metrics.DROPPED.inc(count)
        if not self._is_failing:
            self._is_failing = True
            log.warning("spans_not_exported", reason=reason, effect="the run continues without these traces")


class _Exporter(SpanExporter):
    """An exporter that is opened with the first batch, as its packages take a while to import."""

    def __init__(self, open_exporter: Callable[[], SpanExporter], settle: Callable[[int, str], None]) -> None:
        self._open, self._settle = open_exporter, settle
        self._opened: SpanExporter | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        began = time.monotonic()
        try:
            self._opened = self._opened or self._open()
            result = self._opened.export(spans)
            reason = "" if result is SpanExportResult.SUCCESS else "the collector did not take them"
        except Exception as error:  # An exporter may raise anything; the run goes on without its traces.
            result, reason = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"
        metrics.EXPORT_SECONDS.observe(time.monotonic() - began)
        self._settle(len(spans), reason)
        return result

    def shutdown(self) -> None:
        if self._opened is not None:
            self._opened.shutdown()
