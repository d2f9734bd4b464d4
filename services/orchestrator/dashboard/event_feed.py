"""Server-sent events for all connected browsers; a client that is too slow is disconnected and resumes later."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel

from headrace.wire.api.model import encode

MOST_CLIENTS = 64
_QUEUE = 512
_HEARTBEAT_S = 10.0
_AT_ONCE = 64
"""Missed events per send: sending each on its own would take ten times as long."""

Missed = Callable[[], Awaitable[list["Event"]]]


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `step` is the step of a metrics row, from which a client can resume."""

    kind: str
    data: str
    step: int | None = None

    @classmethod
    def of(cls, kind: str, data: BaseModel, step: int | None = None) -> "Event":
        """Creates an event whose data is a model of the API."""
        return cls(kind, encode(data).decode(), step)

    @property
    def text(self) -> str:
        """The event in the wire format of server-sent events."""
        name = "" if self.step is None else f"id: s{self.step}\n"
        return f"{name}event: {self.kind}\ndata: {self.data}\n\n"


@dataclass(eq=False, slots=True)
class _Client:
    token: str
    queue: "asyncio.Queue[Event | None]" = field(default_factory=lambda: asyncio.Queue(_QUEUE))
    is_cut: bool = False


def _by(size: int, events: list[Event]) -> Iterator[list[Event]]:
    return (events[start : start + size] for start in range(0, len(events), size))


class EventFeed:
    """Fans events out to all clients. Used on one event loop only."""

    def __init__(self) -> None:
        self._clients: dict[_Client, None] = {}
        """Oldest first."""
        self.is_closed = False
        """Whether no client is taken in any more."""

    def __len__(self) -> int:
        return len(self._clients)

    def send(self, event: Event) -> None:
        """Queues the event for every connected client; disconnects clients whose queue is full."""
        for client in list(self._clients):
            try:
                client.queue.put_nowait(event)
            except asyncio.QueueFull:
                self._cut(client)

    def close(self) -> None:
        """Ends all streams, so that the server can stop."""
        self.is_closed = True
        for client in list(self._clients):
            self._cut(client)

    def _cut(self, client: _Client) -> None:
        """Ends the client's stream after the event that is being sent now."""
        self._clients.pop(client, None)
        client.is_cut = True
        while not client.queue.empty():
            client.queue.get_nowait()
        client.queue.put_nowait(None)

    def _make_room(self) -> None:
        """Ends the oldest stream of the token that has the most, if no further one fits."""
        if len(self._clients) >= MOST_CLIENTS:
            ((greedy, _),) = Counter(client.token for client in self._clients).most_common(1)
            self._cut(next(client for client in self._clients if client.token == greedy))

    async def listen(self, missed: Missed, token: str = "") -> AsyncIterator[str]:
        """The stream of a new client: the events of `missed()`, then all new ones."""
        self._make_room()
        client = _Client(token)
        # From here on no event is lost: those sent while the missed rows are read wait in the queue.
        self._clients[client] = None
        last = -1
        try:
            yield "retry: 1000\n\n"
            for some in _by(_AT_ONCE, await missed()):
                last = max((event.step for event in some if event.step is not None), default=last)
                yield "".join(event.text for event in some)
                await asyncio.sleep(0)  # A send may not suspend: yield to other tasks, and notice a disconnect.
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
            self._clients.pop(client, None)
