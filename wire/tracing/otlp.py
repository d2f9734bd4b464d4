"""OpenTelemetry's exporters, as `[tracing]` names them."""

import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

from opentelemetry.sdk.trace.export import SpanExporter

from headrace.wire.settings import TracingTable
from headrace.wire.urls import is_internal

_PATH = "/v1/traces"


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
