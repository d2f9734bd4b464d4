"""uvicorn's connection with the bounds that it lacks: a peer that neither asks nor reads is cut off; few are open."""

import asyncio
import math
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.wire.http.guard import OPEN_PATHS
from headrace.wire.http.refusals import note_refusal

HEAD_S = 30.0
"""Seconds for a request line and headers to arrive, for what is left of a body that was refused, and for the peer to
read `_PROGRESS` of an answer."""
MOST_CONNECTIONS = 512
"""Open at a time on one port: each needs a file descriptor, which journal and checkpoints of the process need, too."""
_KERNEL = 128 << 10
"""Bytes in the kernel that a peer has not read yet."""
_PROGRESS = 16 << 10
"""Bytes: a peer that reads less of an answer in `HEAD_S` does not read."""


class BoundedConnection(H11Protocol):
    """One connection; it is cut off if its peer owes a request, or reads nothing of an answer, for `HEAD_S`."""

    _late: asyncio.TimerHandle | None = None
    """Runs while the next move is the peer's."""
    _unread = 0
    """Bytes that the peer had to read when the timer began."""
    _is_answered = _is_cut = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """If too many are open, the one with the least claim to its place makes room, or else this one is closed.

        A flood of connections must not keep out requests, such as the supervisor's, which ends a process that gives
        no answer.
        """
        super().connection_made(transport)
        # The kernel's own buffer grows to megabytes, and asyncio writes again only when a third of it was read: a slow
        # reader would not be seen to read.
        if (plain := transport.get_extra_info("socket")) is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL)
        self._opened = self.loop.time()
        self._watch()
        if len(self.connections) > MOST_CONNECTIONS:
            note_refusal("connections", f"{MOST_CONNECTIONS} connections are open")
            open_ones = (one for one in self.connections if isinstance(one, BoundedConnection))
            min(open_ones, key=lambda one: one.claim)._cut()

    @property
    def claim(self) -> tuple[bool, float]:
        """The least makes room: of the connections that have had an answer, then of all, the oldest.

        Its age counts from the time at which its peer came to owe a request. One that is served is not to be closed,
        unlike a stranger's, who asks for what needs no token, was refused, or has not sent its body yet.
        """
        if self._late is not None:
            return not self._is_answered, self._late.when() - HEAD_S
        if self._is_cut:
            return True, math.inf
        is_served = "endpoint" in self.scope and self.scope["path"] not in OPEN_PATHS
        if is_served and not self.transport.is_closing():
            return True, math.inf
        return not self._is_answered, self._opened

    def data_received(self, data: bytes) -> None:
        """Takes data of a request, or of the rest of one that was answered before its end."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """From here on the client has to send its next request."""
        super().on_response_complete()
        self._is_answered = True
        self._watch()

    def pause_writing(self) -> None:
        """From here on the client has to read."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the watch."""
        self._is_cut = True
        super().connection_lost(exc)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is counted."""
        note_refusal("malformed", msg)
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # The request was answered before its rest turned out to be none.
            self._cut()

    def _watch(self) -> None:
        """Runs the timer while the next move is the peer's; data alone does not start it anew."""
        works = self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY) and not self.flow.write_paused
        if self._late is not None and (works or self._is_cut):
            self._late.cancel()
            self._late = None
        elif self._late is None and not works and not self._is_cut:
            self._unread = self.transport.get_write_buffer_size()
            self._late = self.loop.call_later(HEAD_S, self._look)

    def _look(self) -> None:
        """Cuts the peer off, unless it reads."""
        self._late = None
        left = self.transport.get_write_buffer_size()
        if left and left <= self._unread - _PROGRESS:
            self._watch()
            return
        reason = ("unread", "nothing of an answer was read") if left else ("slow", "no request came")
        note_refusal(reason[0], f"{reason[1]} within {HEAD_S:.0f} s")
        self._cut()

    def _cut(self) -> None:
        self._is_cut = True
        self._watch()
        self.transport.abort()
