"""Spans: opened, given attributes and links, and handed to the sink when they end."""

import secrets
import time
from collections.abc import Iterable, Sequence
from contextvars import Token
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from headrace.wire.telemetry import trace_id
from headrace.wire.tracing.context import CURRENT, is_sampled

Value = str | bool | int | float | Sequence[str] | Sequence[int]
_ID = slice(36, 52)
"""Position of the span's id in a traceparent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A span that has ended. Ids are hex; times are unix nanoseconds."""

    name: str
    trace: str
    id: str
    parent: str
    """Id of the span above; empty = the first of its trace."""
    began: int
    ended: int
    attributes: dict[str, Value]
    links: tuple[str, ...] = ()
    """Traceparents of other traces."""
    error: str = ""


class Sink(Protocol):
    """Takes finished spans; never waits."""

    def put(self, span: Finished) -> None:
        """Takes one, or drops it."""
        ...


@dataclass(slots=True)
class _State:
    sink: Sink | None = None
    ratio: float = 1.0


STATE = _State()


class Span:
    """A span that is open. Use it as a context: what is called inside belongs under it."""

    __slots__ = ("_attributes", "_began", "_links", "_name", "_parent", "_token", "traceparent")

    def __init__(self, name: str, traceparent: str, parent: str, attributes: dict[str, Value]) -> None:
        self.traceparent = traceparent
        self._name, self._parent, self._attributes = name, parent, attributes
        self._links: list[str] = []
        self._began = time.time_ns()
        self._token: Token[str] | None = None

    def set(self, **attributes: Value) -> None:
        """More of what was known only later."""
        self._attributes |= attributes

    def link(self, traceparents: Iterable[str]) -> None:
        """Points at other traces; those that are not recorded are left out."""
        self._links += [one for one in traceparents if is_sampled(one)]

    def __enter__(self) -> "Span":
        self._token = CURRENT.set(self.traceparent)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._token is not None
        CURRENT.reset(self._token)
        if STATE.sink is not None:
            STATE.sink.put(
                Finished(
                    name=self._name,
                    trace=trace_id(self.traceparent),
                    id=self.traceparent[_ID],
                    parent=self._parent,
                    began=self._began,
                    ended=time.time_ns(),
                    attributes=self._attributes,
                    links=tuple(self._links),
                    error=f"{type(error).__name__}: {error}" if error is not None else "",
                )
            )


class _Off(Span):
    """Takes everything and keeps nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        self.traceparent = ""

    def set(self, **attributes: Value) -> None:
        pass

    def link(self, traceparents: Iterable[str]) -> None:
        pass

    def __enter__(self) -> Span:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


OFF: Span = _Off()
"""What `span` gives where nothing is recorded."""


def is_on() -> bool:
    """Whether this process records spans."""
    return STATE.sink is not None


def samples() -> bool:
    """Draws whether a trace that begins now is recorded, by `[tracing] sample_ratio`."""
    return STATE.sink is None or secrets.randbelow(2**32) < STATE.ratio * 2**32


def span(name: str, parent: str = "", *, first: bool = False, begins: bool = False, **attributes: Value) -> Span:
    """A span under `parent` (a traceparent), or under the current one.

    `first`: it is itself the span that `parent` names, the first of its trace. `begins`: where there is none to be
    under, it begins a trace of its own; else nothing is recorded there.
    """
    if STATE.sink is None:
        return OFF
    above = parent or CURRENT.get()
    if not above and begins:
        return Span(name, _traceparent(secrets.token_hex(16)), "", attributes)
    if not is_sampled(above):
        return OFF
    if first:
        return Span(name, above, "", attributes)
    return Span(name, _traceparent(trace_id(above)), above[_ID], attributes)


def record(name: str, parent: str, *, began: int, links: Iterable[str] = (), **attributes: Value) -> None:
    """A span that ends now and has begun at `began` (unix nanoseconds)."""
    if STATE.sink is None or not is_sampled(parent):
        return
    STATE.sink.put(
        Finished(
            name=name,
            trace=trace_id(parent),
            id=secrets.token_hex(8),
            parent=parent[_ID],
            began=began,
            ended=time.time_ns(),
            attributes=attributes,
            links=tuple(one for one in links if is_sampled(one)),
        )
    )


def _traceparent(trace: str) -> str:
    return f"00-{trace}-{secrets.token_hex(8)}-01"
