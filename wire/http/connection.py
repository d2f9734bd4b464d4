"""uvicorn's connection with the bounds that it lacks: one that sends no request ends, and their number is limited."""

import asyncio
import math

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.wire.http.refusals import note_refusal

HEAD_S = 30.0
"""Seconds for a request line and headers to arrive, and for what is left of a body that was refused."""
MOST_CONNECTIONS = 512
"""Open at a time on one port: each needs a file descriptor, which journal and checkpoints of the process need, too."""


class BoundedConnection(H11Protocol):
    """One connection; it is cut off unless it becomes a request within `HEAD_S`."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Closes a connection if there are too many: the one that has sent no request for longest, or else this one.

        A flood of silent connections must not keep out requests, such as the supervisor's, which ends a process
        that gives no answer.
        """
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            note_refusal("connections", f"{MOST_CONNECTIONS} connections are open")
            silent = [one for one in self.connections if isinstance(one, BoundedConnection) and one.is_silent]
            if not silent:
                transport.abort()
                return
            min(silent, key=lambda one: one.silent_until).transport.abort()
        self._watch()

    @property
    def is_silent(self) -> bool:
        """Whether it is open, and no request is in progress on it."""
        return self._late is not None and not self.transport.is_closing()

    @property
    def silent_until(self) -> float:
        """When it is cut off if nothing comes, by the clock of the loop."""
        return self._late.when() if self._late is not None else math.inf

    def data_received(self, data: bytes) -> None:
        """Takes data of a request, or of the rest of one that was answered before its end."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """From here on the client has to send its next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the watch."""
        self._unwatch()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is counted."""
        note_refusal("malformed", msg)
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # The request was answered before its rest turned out to be none.
            self.transport.abort()

    def _watch(self) -> None:
        """Runs a timer while no request is in progress; data alone does not start it anew."""
        if self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY):
            self._unwatch()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(HEAD_S, self._cut_off)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _cut_off(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            note_refusal("slow", f"no request came within {HEAD_S:.0f} s")
            self.transport.abort()
