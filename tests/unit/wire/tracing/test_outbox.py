"""The way out: real exporters to a real server; a collector that is away, slow or refuses costs no caller any time."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from headrace.wire import tracing
from headrace.wire.settings import TracingTable
from headrace.wire.telemetry import new_traceparent
from headrace.wire.tracing import metrics
from headrace.wire.tracing.outbox import Outbox, _Exporter
from tests.otlp import collector


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    yield
    tracing.stop()


@pytest.fixture
def patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is to arrive: the exporter's packages are imported first, which may take longer than an end waits."""
    monkeypatch.setattr("headrace.wire.tracing.outbox._CLOSE_S", 60.0)


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
def test_a_span_arrives_as_it_was(tmp_path: Path) -> None:
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


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each export that has ended, well or not."""
    ended: list[int] = []
    export = _Exporter.export

    def noting(self: _Exporter, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            return export(self, spans)
        finally:
            ended.append(threading.get_ident())

    monkeypatch.setattr(_Exporter, "export", noting)
    return ended


def away() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.usefixtures("patient_end")
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_collector_that_is_away_delays_no_caller(scheme: str, exports: list[int]) -> None:
    before = dropped()
    start(away().replace("http", scheme), timeout_s=0.5)
    for _ in range(1000):
        with tracing.span("step", begins=True):
            pass
    tracing.stop()
    # All were given up by a thread of their own, before the end had to be.
    assert len(exports) >= 2 and threading.get_ident() not in exports
    assert dropped() - before == 1000


def test_one_that_hangs_holds_up_neither_a_span_nor_the_end(
    exports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    with collector(hangs=True) as found:
        monkeypatch.setattr(BatchSpanProcessor, "shutdown", _until(found.released, BatchSpanProcessor.shutdown, closed))
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


def _until(
    released: threading.Event, act: Callable[[BatchSpanProcessor], None], ended: list[bool]
) -> Callable[[BatchSpanProcessor], None]:
    """`act`, if it took until then."""

    def lasting(self: BatchSpanProcessor) -> None:
        act(self)
        released.wait(300)
        ended.append(True)

    return lasting


@pytest.mark.usefixtures("patient_end")
def test_no_more_wait_than_there_is_room_for() -> None:
    begun, gate, sent = threading.Event(), threading.Event(), []

    def slow(spans: Sequence[ReadableSpan]) -> bool:
        begun.set()
        gate.wait(60)
        sent.extend(spans)
        return True

    before = dropped()
    outbox = Outbox(lambda: Answering(slow), size=10, every_s=0.01)
    outbox.on_end(one())
    assert begun.wait(60)  # The thread holds this one.
    for _ in range(50):
        outbox.on_end(one())
    assert dropped() - before == 41
    gate.set()
    outbox.shutdown()
    assert len(sent) == 10
    outbox.on_end(one())  # After the end.
    assert dropped() - before == 42
