"""Ended spans on their way to the collector: OpenTelemetry's exporters and its batch processor.

`BatchSpanProcessor` starts its thread when it is made, drops the oldest span of a full queue uncounted, and may wait
half a minute at its end. Here it is made with the first span (the trainer starts its other ranks while it has no
threads), its queue is never full, and it is abandoned at a deadline.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from headrace.wire.config.settings import TracingTable
from headrace.wire.peers.urls import is_internal
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.tracing import metrics

_PATH = "/v1/traces"
_EVERY_S = 0.5
_BATCH = 512
_SIZE = 4096
_CLOSE_S = 2.0
"""A process that is to end must end: at most so long for the last spans."""
log = get_logger("headrace.wire.tracing")


def open_exporter(table: TracingTable, headers: Mapping[str, str]) -> SpanExporter:
    """A way to the collector of `[tracing]`; connects with the first export."""
    # They log every failed try; our own log has the first one of an outage.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    scheme, _, rest = table.endpoint.partition("://")
    internal = is_internal(urlsplit(table.endpoint).hostname or "")
    if table.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc(
            endpoint=rest,
            insecure=scheme == "grpc",
            headers=dict(headers),
            timeout=table.timeout_s,
            channel_options=(("grpc.enable_http_proxy", int(not internal)),),  # type: ignore[arg-type]  # An integer.
        )
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    url = table.endpoint if "/" in rest.rstrip("/") else table.endpoint.rstrip("/") + _PATH
    session = requests.Session()
    session.trust_env = not internal
    return OverHttp(endpoint=url, headers=dict(headers), timeout=table.timeout_s, session=session)


class Outbox(SpanProcessor, SpanExporter):
    """Sends ended spans in batches, from one daemon thread. Taking a span never waits."""

    def __init__(self, open_exporter: Callable[[], SpanExporter], *, size: int = _SIZE) -> None:
        """`open_exporter` is called by the thread, as its packages take a while to import. At most `size` are held."""
        self._open, self._size = open_exporter, size
        self._exporter: SpanExporter | None = None
        self._batches: BatchSpanProcessor | None = None
        self._lock = threading.Lock()
        self._held = 0
        """Spans that were taken, and are neither exported nor dropped."""
        self._is_failing = self._is_closed = False

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span, or drops it where too many are held already."""
        with self._lock:
            takes = self._held < self._size and not self._is_closed
            self._held += takes
            if takes and self._batches is None:
                self._batches = BatchSpanProcessor(
                    self,
                    max_queue_size=self._size,
                    schedule_delay_millis=_EVERY_S * 1000,
                    max_export_batch_size=min(_BATCH, self._size),
                )
            batches = self._batches
        if takes and batches is not None:
            batches.on_end(span)
        else:
            self._drop(1, "the process ends" if self._is_closed else "the queue is full")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Exports a batch, on the thread of the batch processor, and counts what became of it."""
        try:
            self._exporter = self._exporter or self._open()
            result = self._exporter.export(spans)
            reason = "the collector did not take them"
        except Exception as error:  # An exporter may raise anything; the run goes on without its traces.
            result, reason = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"
        with self._lock:
            if self._is_closed and not self._held:
                return result  # They were counted as dropped at the end.
            self._held -= len(spans)
        if result is SpanExportResult.SUCCESS:
            metrics.EXPORTED.inc(len(spans))
            self._is_failing = False
        else:
            self._drop(len(spans), reason)
        return result

    def shutdown(self) -> None:
        """Sends what is left, for two seconds at the most. The batch processor calls it too, at its own end."""
        with self._lock:
            batches, self._batches, was_closed, self._is_closed = self._batches, None, self._is_closed, True
        if was_closed:
            if self._exporter is not None:
                self._exporter.shutdown()
            return
        if batches is None:
            return
        end = threading.Thread(target=batches.shutdown, daemon=True)
        end.start()
        end.join(_CLOSE_S)
        with self._lock:
            left, self._held = self._held, 0
        if left:
            self._drop(left, "the process ends")

    def force_flush(self, timeout_millis: int | None = None) -> bool:
        """Does nothing: no caller flushes."""
        return True

    def _drop(self, count: int, reason: str) -> None:
        """Counts dropped spans; logs a line once per outage."""
        metrics.DROPPED.inc(count)
        if not self._is_failing:
            self._is_failing = True
            log.warning("spans_not_exported", reason=reason, effect="the run continues without these traces")
