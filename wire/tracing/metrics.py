"""Every metric of tracing, declared once; each service emits them."""

from prometheus_client import Counter

EXPORTED = Counter("headrace_tracing_spans_exported", "Spans that the collector accepted.")
DROPPED = Counter(
    "headrace_tracing_spans_dropped", "Spans that the collector did not accept, or that did not fit the queue."
)
