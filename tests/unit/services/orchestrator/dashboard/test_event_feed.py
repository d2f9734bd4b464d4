"""Everybody hears what happens, once and in order; who is too slow is cut off."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.services.orchestrator.dashboard import event_feed as feed_module
from headrace.services.orchestrator.dashboard.event_feed import Event, EventFeed
from headrace.wire.api.series import StepMetrics


def step(number: int) -> Event:
    return Event.of("step", StepMetrics({"step": number}), number)


async def nothing() -> list[Event]:
    return []


async def begun(feed: EventFeed, missed=nothing, token: str = "") -> AsyncIterator[str]:
    """A client that is taken in."""
    stream = feed.listen(missed, token)
    assert (await anext(stream)).startswith("retry:")
    return stream


async def test_all_clients_hear_all_events() -> None:
    feed = EventFeed()
    streams = [await begun(feed), await begun(feed)]
    feed.send(step(1))
    feed.send(step(2))
    assert [[await anext(stream) for _ in range(2)] for stream in streams] == [[step(1).text, step(2).text]] * 2


async def test_missed_events_come_first_and_no_step_comes_twice() -> None:
    feed = EventFeed()
    told = asyncio.Event()

    async def missed() -> list[Event]:
        feed.send(step(2))
        feed.send(step(3))  # It happens while the missed rows are read.
        told.set()
        return [step(1), step(2)]

    stream = await begun(feed, missed)
    assert [await anext(stream) for _ in range(2)] == [step(1).text + step(2).text, step(3).text]


async def test_a_client_that_does_not_read_is_cut_off_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_QUEUE", 3)
    feed = EventFeed()
    slow = await begun(feed)
    quick = await begun(feed)
    heard = []
    for number in range(1, 10):
        feed.send(step(number))
        heard.append(await anext(quick))
    assert heard == [step(number).text for number in range(1, 10)]
    assert len(feed) == 1
    assert [text async for text in slow] == []


async def test_in_a_full_feed_the_oldest_stream_of_the_greediest_token_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed_module, "MOST_CLIENTS", 4)
    feed = EventFeed()
    first, *greedy = [await begun(feed, token=token) for token in ("a", "b", "b", "b")]
    late = [await begun(feed, token=token) for token in ("b", "c")]
    feed.send(step(1))
    assert [await anext(stream, "ended") for stream in greedy] == ["ended", "ended", step(1).text]
    assert [await anext(stream) for stream in (first, *late)] == [step(1).text] * 3
    await first.aclose()
    assert len(feed) == 3


async def test_a_closed_feed_ends_all_streams_and_accepts_no_client() -> None:
    feed = EventFeed()
    streams = [await begun(feed), await begun(feed)]
    waiting = [asyncio.create_task(anext(stream, "ended")) for stream in streams]
    await asyncio.sleep(0)
    feed.close()
    assert await asyncio.gather(*waiting) == ["ended", "ended"]
    assert feed.is_closed and len(feed) == 0
