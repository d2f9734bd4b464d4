"""Spans: whose child each is, what is recorded, and what it costs while nothing is."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.wire import tracing
from headrace.wire.telemetry.logs import new_traceparent, trace_id
from tests.spans import Kept, parent, recording, traceparent


@pytest.fixture
def kept() -> Iterator[Kept]:
    with recording() as found:
        yield found


def test_the_first_span_of_a_trace_has_the_id_that_its_message_carries(kept: Kept) -> None:
    message = new_traceparent()
    with tracing.span("issue", message, first=True):
        pass
    with tracing.span("generate", message, tokens=7) as span:
        span.set(version=["1.2"])
    issue, generate = kept["issue"], kept["generate"]
    assert (traceparent(issue), parent(issue), parent(generate)) == (message, "", message)
    assert generate.attributes == {"headrace.tokens": 7, "headrace.version": ("1.2",)}
    assert generate.start_time <= generate.end_time


def test_a_span_opened_inside_another_is_its_child(kept: Kept) -> None:
    with tracing.span("step", begins=True) as step:
        with tracing.span("train"):
            pass
        assert tracing.carrier() == {"traceparent": step.traceparent}
    assert parent(kept["train"]) == traceparent(kept["step"]) == step.traceparent
    assert tracing.carrier() == {}


async def test_spans_of_tasks_started_inside_a_span_are_its_children(kept: Kept) -> None:
    async def inner(name: str) -> None:
        with tracing.span(name, begins=True):
            await asyncio.sleep(0)

    async def outer() -> None:
        with tracing.span("outer", begins=True):
            await asyncio.gather(inner("a"), inner("b"))

    await asyncio.gather(outer(), inner("c"))
    assert parent(kept["a"]) == parent(kept["b"]) == traceparent(kept["outer"])
    assert parent(kept["c"]) == "" and kept["c"].context.trace_id != kept["outer"].context.trace_id


def test_a_span_without_a_sampled_parent_is_not_recorded(kept: Kept) -> None:
    with tracing.span("score length"):
        pass
    for carried in ("nonsense", new_traceparent(sampled=False)):
        with tracing.under([("traceparent", carried)]), tracing.span("score length"):
            pass
    assert kept.spans == []


def test_an_error_is_recorded_and_raised(kept: Kept) -> None:
    with pytest.raises(ValueError, match="no"), tracing.span("step", begins=True):
        raise ValueError("no")
    assert kept["step"].status.description == "ValueError: no"


def test_the_first_service_of_a_trace_decides_on_sampling(kept: Kept) -> None:
    unseen, seen = new_traceparent(sampled=False), new_traceparent()
    assert trace_id(unseen)
    with tracing.span("generate", unseen), tracing.span("inside") as inside:
        inside.link([unseen, seen])
    tracing.record("train", unseen, began=0)
    tracing.record("train", "", began=0)
    with tracing.span("step", begins=True) as step:
        step.link([unseen, seen])
    assert [span.name for span in kept.spans] == ["step"]
    (link,) = kept["step"].links
    assert f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-01" == seen


def test_tracing_that_is_off_records_nothing() -> None:
    assert not tracing.is_on()
    with tracing.span("generate", new_traceparent(), group_id="g") as span:
        span.set(tokens=1)
        span.link([new_traceparent()])
        assert span is tracing.OFF and tracing.carrier() == {}


def test_tracing_that_is_off_imports_nothing() -> None:
    code = (
        "import sys; from headrace.wire import tracing; from headrace.wire.config.settings import TracingTable;"
        "tracing.start(TracingTable(), service='s', run_id='r', instance='0');"
        "tracing.stop(); sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
