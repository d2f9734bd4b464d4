"""Logs, metrics, and gauges of long operations. Traces have a room of their own: `headrace.wire.tracing`."""
