"""Every metric of tracing, declared once; each service emits them."""

from prometheus_client import Counter, Histogram

EXPORTED = Counter("headrace_tracing_spans_exported", "Spans that the collector accepted.")
DROPPED = Counter(
    "headrace_tracing_spans_dropped", "Spans that the collector did not accept, or that did not fit the queue."
)
EXPORT_SECONDS = Histogram("headrace_tracing_export_seconds", "One export of up to 512 spans.")
