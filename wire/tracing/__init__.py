"""Traces: one from prompt to optimizer step, over all services, by OpenTelemetry's protocol. Off unless asked for.

A span is opened where its work is done: `with tracing.span("score", header.traceparent, group_id=...) as span`. While
tracing is off that costs a call and nothing is imported. See docs/metrics.md.
"""

from headrace.wire.tracing.span import OFF, Span
from headrace.wire.tracing.spans import carrier, is_on, record, samples, span, under
from headrace.wire.tracing.switch import check_ready, start, stop

__all__ = [
    "OFF",
    "Span",
    "carrier",
    "check_ready",
    "is_on",
    "record",
    "samples",
    "span",
    "start",
    "stop",
    "under",
]
