"""Spans: whose child each is, what is recorded, and what it costs while nothing is."""

import asyncio
import subprocess
import sys
import time
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


def test_what_is_opened_inside_of_a_span_is_its_child(kept: Kept) -> None:
    with tracing.span("step", begins=True) as step:
        with tracing.span("train"):
            pass
        assert tracing.carrier() == {"traceparent": step.traceparent}
    assert parent(kept["train"]) == traceparent(kept["step"]) == step.traceparent
    assert tracing.carrier() == {}


async def test_tasks_of_a_span_belong_to_it_and_tasks_beside_it_do_not(kept: Kept) -> None:
    async def inner(name: str) -> None:
        with tracing.span(name, begins=True):
            await asyncio.sleep(0)

    async def outer() -> None:
        with tracing.span("outer", begins=True):
            await asyncio.gather(inner("a"), inner("b"))

    await asyncio.gather(outer(), inner("c"))
    assert parent(kept["a"]) == parent(kept["b"]) == traceparent(kept["outer"])
    assert parent(kept["c"]) == "" and kept["c"].context.trace_id != kept["outer"].context.trace_id


def test_a_part_of_nothing_is_not_recorded(kept: Kept) -> None:
    with tracing.span("score length"):
        pass
    for carried in ("nonsense", new_traceparent(sampled=False)):
        with tracing.under([("traceparent", carried)]), tracing.span("score length"):
            pass
    assert kept.spans == []


def test_an_error_is_told_and_goes_on(kept: Kept) -> None:
    with pytest.raises(ValueError, match="no"), tracing.span("step", begins=True):
        raise ValueError("no")
    assert kept["step"].status.description == "ValueError: no"


def test_whoever_begins_a_trace_decides_for_all_services(kept: Kept) -> None:
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


def test_what_is_off_keeps_nothing_and_costs_next_to_nothing() -> None:
    assert not tracing.is_on()
    with tracing.span("generate", new_traceparent(), group_id="g") as span:
        span.set(tokens=1)
        span.link([new_traceparent()])
        assert span is tracing.OFF and tracing.carrier() == {}
    parent, rounds = new_traceparent(), 20_000
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for _ in range(rounds):
            with tracing.span("generate", parent, group_id="g"):
                pass
        best = min(best, (time.thread_time() - began) / rounds)
    assert best < 10e-6  # About half a microsecond; a group has some five spans.


def test_what_is_off_imports_nothing() -> None:
    code = (
        "import sys; from headrace.wire import tracing; from headrace.wire.config.settings import TracingTable;"
        "tracing.start(TracingTable(), service='s', run_id='r', instance='0');"
        "tracing.stop(); sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
