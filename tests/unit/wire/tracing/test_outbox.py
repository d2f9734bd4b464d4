"""The way out: real exporters to a real server; a collector that is away, slow or refuses costs no caller any time."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from headrace.wire import tracing
from headrace.wire.config.settings import TracingTable
from headrace.wire.errors import ConfigError
from headrace.wire.telemetry.logs import new_traceparent
from headrace.wire.tracing import metrics
from headrace.wire.tracing.export import Outbox
from headrace.wire.tracing.spans import STATE
from tests.otlp import collector


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    yield
    tracing.stop()


@pytest.fixture
def patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is to arrive: the exporter's packages are imported first, which may take longer than an end waits."""
    monkeypatch.setattr("headrace.wire.tracing.export._CLOSE_S", 60.0)


def start(endpoint: str, **table: object) -> None:
    settings = TracingTable.model_validate({"endpoint": endpoint} | table)
    tracing.start(settings, service="trainer", run_id="tiny", instance="0")


def one() -> ReadableSpan:
    context = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return ReadableSpan(name="step", context=context, start_time=1, end_time=2)


class Answering(SpanExporter):
    """Answers each export as told."""

    def __init__(self, answer: Callable[[Sequence[ReadableSpan]], bool]) -> None:
        self._answer = answer

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS if self._answer(spans) else SpanExportResult.FAILURE


def dropped() -> float:
    return float(metrics.DROPPED._value.get())


@pytest.mark.usefixtures("patient_end")
def test_a_span_arrives_with_its_attributes_links_and_error(tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("X-Key: secret: 1\n\n")
    with collector() as found:
        start(found.url, headers_file=headers)
        message, other = new_traceparent(), new_traceparent()
        with pytest.raises(ValueError), tracing.span("score", message, group_id="g", tokens=3, of=["1.2"]) as span:
            span.link([other])
            raise ValueError("no")
        tracing.stop()
    (seen,) = found.spans
    assert (seen.service, seen.name, seen.trace, seen.parent) == ("trainer", "score", message[3:35], message[36:52])
    assert seen.attributes == {"group_id": "g", "tokens": 3, "of": ["1.2"]}
    assert seen.links == ((other[3:35], other[36:52]),) and seen.error == "ValueError: no"
    assert found.headers[0]["x-key"] == "secret: 1"


@pytest.mark.usefixtures("patient_end")
def test_spans_are_exported_over_grpc() -> None:
    import concurrent.futures

    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

    names: list[str] = []

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request, context):
            names.extend(s.name for r in request.resource_spans for p in r.scope_spans for s in p.spans)
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        start(f"grpc://127.0.0.1:{port}")
        with tracing.span("step", begins=True):
            pass
        tracing.stop()
    finally:
        server.stop(0).wait(5)
    assert names == ["step"]


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each export that has ended, well or not."""
    ended: list[int] = []
    export = Outbox.export

    def noting(self: Outbox, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            return export(self, spans)
        finally:
            ended.append(threading.get_ident())

    monkeypatch.setattr(Outbox, "export", noting)
    return ended


def test_a_hanging_collector_delays_no_span_and_no_shutdown(
    exports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    with collector(hangs=True) as found:
        lasting = lambda _: closed.append(found.released.wait(300))  # noqa: E731
        monkeypatch.setattr(BatchSpanProcessor, "shutdown", lasting)
        start(found.url, timeout_s=300)
        with tracing.span("step", begins=True):
            pass
        assert found.asked.wait(120)
        for _ in range(1000):
            with tracing.span("step", begins=True):
                pass
        assert not exports, "a span waited for the export"
        before = dropped()
        tracing.stop()
        assert not exports, "the end waited for the export"
        assert not closed, "the end waited for the SDK's own, which takes half a minute"
        assert dropped() - before == 1001


@pytest.mark.usefixtures("patient_end")
def test_spans_beyond_the_queue_size_are_dropped_and_counted() -> None:
    begun, gate, sent = threading.Event(), threading.Event(), []

    def slow(spans: Sequence[ReadableSpan]) -> bool:
        begun.set()
        gate.wait(60)
        sent.extend(spans)
        return True

    before = dropped()
    outbox = Outbox(lambda: Answering(slow), size=10)
    outbox.on_end(one())
    assert begun.wait(60)  # The thread holds this one.
    for _ in range(50):
        outbox.on_end(one())
    assert dropped() - before == 41
    gate.set()
    outbox.shutdown()
    assert len(sent) == 10


def test_spans_are_dropped_where_the_exporter_cannot_be_opened() -> None:
    def broken() -> SpanExporter:
        raise RuntimeError("no")

    outbox = Outbox(broken)
    before = dropped()
    outbox.on_end(one())
    outbox.shutdown()
    assert dropped() - before == 1


def test_missing_packages_and_bad_header_files_are_rejected_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"headers_file.*absent"):
        start("http://127.0.0.1:1", headers_file=tmp_path / "absent")
    (tmp_path / "bad").write_text("no colon\n")
    with pytest.raises(ConfigError, match="line 1"):
        start("http://127.0.0.1:1", headers_file=tmp_path / "bad")
    monkeypatch.setattr("headrace.wire.tracing.switch.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'headrace\[tracing\]'"):
        start("grpc://127.0.0.1:1")
    assert STATE.tracer is None
