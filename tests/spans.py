"""Tracing that is on, with the SDK's spans kept in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headrace.wire.tracing.sdk import Tracer
from headrace.wire.tracing.spans import STATE


class Kept:
    """All spans that have ended, by name."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def __getitem__(self, name: str) -> ReadableSpan:
        return next(span for span in self.spans if span.name == name)


@contextmanager
def recording() -> Iterator[Kept]:
    """Inside, this process records its spans."""
    kept = Kept()
    STATE.tracer = Tracer(SimpleSpanProcessor(kept.exporter), {"service.name": "tests"})
    try:
        yield kept
    finally:
        STATE.tracer, STATE.ratio = None, 1.0


def traceparent(span: ReadableSpan) -> str:
    """As other processes read it."""
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def parent(span: ReadableSpan) -> str:
    """The traceparent of the span above; empty for the first of its trace."""
    above = span.parent
    return f"00-{above.trace_id:032x}-{above.span_id:016x}-{above.trace_flags:02x}" if above else ""
