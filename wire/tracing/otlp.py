"""The one file that knows OpenTelemetry's packages: our spans as theirs, sent by their exporters."""

import logging
from collections.abc import Mapping, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from headrace.wire.settings import TracingTable
from headrace.wire.telemetry import trace_id
from headrace.wire.tracing.outbox import Export
from headrace.wire.tracing.spans import Finished

_PATH = "/v1/traces"
_SCOPE = InstrumentationScope("headrace")
_PREFIX = "headrace."


def open_otlp(table: TracingTable, headers: Mapping[str, str], resource: Mapping[str, str]) -> Export:
    """A way to the collector of `[tracing]`; connects with the first export."""
    # They log every failed try; our own log has the first one of an outage.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = _exporter(table, dict(headers))
    whose = Resource(dict(resource))

    def export(spans: Sequence[Finished]) -> bool:
        return exporter.export([readable(span, whose) for span in spans]) is SpanExportResult.SUCCESS

    return export


def _exporter(table: TracingTable, headers: dict[str, str]) -> SpanExporter:
    scheme, _, rest = table.endpoint.partition("://")
    if table.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc(endpoint=rest, insecure=scheme == "grpc", headers=headers, timeout=table.timeout_s)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    url = table.endpoint if "/" in rest.rstrip("/") else table.endpoint.rstrip("/") + _PATH
    return OverHttp(endpoint=url, headers=headers, timeout=table.timeout_s)


def readable(span: Finished, resource: Resource) -> ReadableSpan:
    """The span as OpenTelemetry has it."""
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.id),
        parent=_context(span.trace, span.parent) if span.parent else None,
        resource=resource,
        attributes={_PREFIX + key: value for key, value in span.attributes.items()},
        links=[Link(_context(trace_id(one), one[36:52])) for one in span.links],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.began,
        end_time=span.ended,
        instrumentation_scope=_SCOPE,
    )


def _context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
