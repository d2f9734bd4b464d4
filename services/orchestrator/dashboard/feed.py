"""Server-sent events: what happens, to every browser that listens; who is too slow is cut off and resumes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

MOST_CLIENTS = 64
_QUEUE = 512
_HEARTBEAT_S = 10.0
_AT_ONCE = 64
"""Missed events in one send: a send for each would take ten times as long."""

Missed = Callable[[], Coroutine[Any, Any, list["Event"]]]


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `step` names a step's row, by whose id a client resumes."""

    kind: str
    data: str
    step: int | None = None

    @classmethod
    def of(cls, kind: str, data: Any, step: int | None = None) -> "Event":
        """From JSON values."""
        return cls(kind, json.dumps(data, separators=(",", ":")), step)

    @property
    def text(self) -> str:
        """As it is sent."""
        name = "" if self.step is None else f"id: s{self.step}\n"
        return f"{name}event: {self.kind}\ndata: {self.data}\n\n"


@dataclass(eq=False, slots=True)
class _Client:
    queue: "asyncio.Queue[Event | None]" = field(default_factory=lambda: asyncio.Queue(_QUEUE))
    is_cut: bool = False


def _by(size: int, events: list[Event]) -> Iterator[list[Event]]:
    return (events[start : start + size] for start in range(0, len(events), size))


class Feed:
    """Lives on one event loop."""

    def __init__(self) -> None:
        self._clients: set[_Client] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def is_full(self) -> bool:
        """No other client can be taken."""
        return self._closed or len(self._clients) >= MOST_CLIENTS

    def send(self, event: Event) -> None:
        """To everybody who listens now."""
        for client in list(self._clients):
            try:
                client.queue.put_nowait(event)
            except asyncio.QueueFull:
                self._cut(client)

    def close(self) -> None:
        """Ends all streams, so that the server can stop."""
        self._closed = True
        for client in list(self._clients):
            self._cut(client)

    def _cut(self, client: _Client) -> None:
        """Its stream ends with what it is sending now."""
        self._clients.discard(client)
        client.is_cut = True
        while not client.queue.empty():
            client.queue.get_nowait()
        client.queue.put_nowait(None)

    async def listen(self, missed: Missed) -> AsyncIterator[str]:
        """The stream of a new client: what `missed()` returns, then whatever happens."""
        client = _Client()
        # From now on nothing is lost: what comes while the missed rows are read waits in the queue.
        self._clients.add(client)
        last = -1
        try:
            yield "retry: 1000\n\n"
            for some in _by(_AT_ONCE, await missed()):
                last = max((event.step for event in some if event.step is not None), default=last)
                yield "".join(event.text for event in some)
                await asyncio.sleep(0)  # A send need not wait: others have their turn, and who has gone is noticed.
            while not client.is_cut:
                try:
                    async with asyncio.timeout(_HEARTBEAT_S):
                        event_or_end = await client.queue.get()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if event_or_end is None:
                    return
                if event_or_end.kind == "resync":
                    last = -1
                if event_or_end.step is None or event_or_end.step > last:
                    yield event_or_end.text
        finally:
            self._clients.discard(client)
