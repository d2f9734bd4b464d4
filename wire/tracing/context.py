"""Which span the running code belongs to: a W3C traceparent that follows tasks, threads' calls and gRPC metadata."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from headrace.wire.telemetry import trace_id

KEY = "traceparent"
"""Key of the gRPC metadata."""
CURRENT: ContextVar[str] = ContextVar("headrace_span", default="")


def current() -> str:
    """The traceparent of the span we are in; empty outside of any, and while tracing is off."""
    return CURRENT.get()


def is_sampled(traceparent: str) -> bool:
    """Whether spans of this trace are recorded, as the process that began it decided."""
    return bool(trace_id(traceparent)) and bool(int(traceparent[-2:], 16) & 1)


def parent_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The traceparent that came with a call; empty without one."""
    found = next((value for key, value in metadata or () if key == KEY), "")
    return found if isinstance(found, str) and trace_id(found) else ""


@contextmanager
def under(traceparent: str) -> Iterator[None]:
    """Inside, spans are children of `traceparent`: a span of another process."""
    token = CURRENT.set(traceparent)
    try:
        yield
    finally:
        CURRENT.reset(token)
