"""A collector: a real HTTP server that takes OTLP traces, decodes them, and may hang."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True)
class Seen:
    """A span as it arrived."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    began: int
    ended: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    error: str


class Collector:
    """What has arrived so far, and with which headers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Seen] = []
        self.headers: list[dict[str, str]] = []
        self.asked = threading.Event()
        """Set once a collector that hangs has a request."""
        self.released = threading.Event()
        """Set once a collector that hangs may answer."""

    def of_trace(self, trace: str) -> list[Seen]:
        return sorted((span for span in self.spans if span.trace == trace), key=lambda span: span.began)

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        self.headers.append(headers)
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            told = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_seen(told["service.name"], span) for span in scope.spans]


@contextmanager
def collector(*, hangs: bool = False, status: int = 200) -> Iterator[Collector]:
    """Runs one on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if hangs:
                found.asked.set()
                found.released.wait(300)
                return
            if status == 200:
                assert self.path == "/v1/traces"
                found.take(body, {key.lower(): value for key, value in self.headers.items()})
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.released.set()
        server.shutdown()
        server.server_close()
        thread.join(60)


def _seen(service: str, span: Span) -> Seen:
    return Seen(
        service=service.removeprefix("headrace-"),
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        attributes={one.key.removeprefix("headrace."): _value(one.value) for one in span.attributes},
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        error=span.status.message,
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
