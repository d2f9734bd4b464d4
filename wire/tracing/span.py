"""A span that records nothing: used while tracing is off, and the interface of recording spans."""

from collections.abc import Iterable, Sequence
from types import TracebackType

Value = str | bool | int | float | Sequence[str] | Sequence[int]


class Span:
    """A span that is open; this base records nothing. Use it as a context: what is called inside belongs under it."""

    __slots__ = ()

    @property
    def traceparent(self) -> str:
        """W3C traceparent; empty for a span that is not recorded."""
        return ""

    def set(self, **attributes: Value) -> None:
        """Adds attributes that are known only later."""

    def link(self, traceparents: Iterable[str]) -> None:
        """Links other traces; traces that are not recorded are left out."""

    def end(self, error: BaseException | None = None) -> None:
        """Ends the span, as its context does."""

    def __enter__(self) -> "Span":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end(error)


OFF = Span()
"""What `span` gives where nothing is recorded."""
