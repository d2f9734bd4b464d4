"""Spans as the services open them. While tracing is off this is all there is of it, and nothing is imported.

`sdk.py` records them with OpenTelemetry's SDK, once `start` has turned tracing on.
"""

import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.wire.tracing.span import OFF, Span, Value

if TYPE_CHECKING:
    from headrace.wire.tracing.sdk import Tracer


@dataclass(slots=True)
class _State:
    tracer: "Tracer | None" = None
    ratio: float = 1.0


STATE = _State()


def is_on() -> bool:
    """Whether this process records spans."""
    return STATE.tracer is not None


def samples() -> bool:
    """Draws whether a trace that begins now is recorded, by `[tracing] sample_ratio`."""
    return STATE.tracer is None or secrets.randbelow(2**32) < STATE.ratio * 2**32


def span(name: str, parent: str = "", *, first: bool = False, begins: bool = False, **attributes: Value) -> Span:
    """A span under `parent` (a traceparent), or under the current one.

    `first`: it is itself the span that `parent` names, the first of its trace. `begins`: where there is none to be
    under, it begins a trace of its own; else nothing is recorded there.
    """
    if STATE.tracer is None:
        return OFF
    return STATE.tracer.span(name, parent, attributes, first=first, begins=begins)


def record(name: str, parent: str, *, began: int, links: Iterable[str] = (), **attributes: Value) -> None:
    """A span that ends now and has begun at `began` (unix nanoseconds)."""
    if STATE.tracer is not None and parent:
        past = STATE.tracer.span(name, parent, attributes, began=began)
        past.link(links)
        past.end()


def carrier() -> dict[str, str]:
    """The current span as headers of a request; empty outside of any, and while tracing is off."""
    return STATE.tracer.carrier() if STATE.tracer is not None else {}


def under(headers: Iterable[tuple[str, str | bytes]] | None) -> AbstractContextManager[None]:
    """Inside, spans are children of the span that a request's headers carry, if they do."""
    return nullcontext() if STATE.tracer is None else STATE.tracer.under(headers or ())
