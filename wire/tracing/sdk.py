"""Spans recorded by OpenTelemetry's SDK. Only `start` imports this file: the extra `tracing` may not be installed."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace.wire.tracing.span import OFF, Span, Value

_PREFIX = "headrace."
_GIVEN: ContextVar[trace.SpanContext | None] = ContextVar("headrace_given_ids", default=None)
"""Ids that the next span must have: a message has carried them before the span began."""
_PROPAGATOR = TraceContextTextMapPropagator()
_KEY = "traceparent"


class _Ids(RandomIdGenerator):
    def generate_trace_id(self) -> int:
        given = _GIVEN.get()
        return given.trace_id if given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        given = _GIVEN.get()
        return given.span_id if given else super().generate_span_id()

    def is_trace_id_random(self) -> bool:
        return False


class _Recorded(Span):
    __slots__ = ("_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Token[Context] | None = None

    @property
    def traceparent(self) -> str:
        return _inject(trace.set_span_in_context(self._span, Context())).get(_KEY, "")

    def set(self, **attributes: Value) -> None:
        self._span.set_attributes(_prefixed(attributes))

    def link(self, traceparents: Iterable[str]) -> None:
        for one in traceparents:
            context = _span_context(_extract(one))
            if context.trace_flags.sampled:
                self._span.add_link(context)

    def end(self, error: BaseException | None = None) -> None:
        if error is not None:  # The SDK's own context manager leaves out cancellations.
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        self._span.end()

    def __enter__(self) -> Span:
        self._token = attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._token is not None
        detach(self._token)
        self.end(error)


class Tracer:
    """Opens the SDK's spans. The process that began a trace has decided for all whether it is recorded."""

    def __init__(self, processor: SpanProcessor, resource: Mapping[str, str]) -> None:
        """`processor` takes the spans that have ended; `resource` describes this process."""
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # No span is opened in a trace that is not recorded.
            resource=Resource(dict(resource)),
            shutdown_on_exit=False,  # It would have no deadline.
            id_generator=_Ids(),
            span_limits=SpanLimits(max_links=SpanLimits.UNSET),  # A step links to each of its groups.
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("headrace")
        self.stop = self._provider.shutdown

    def span(
        self,
        name: str,
        parent: str,
        attributes: Mapping[str, Value],
        *,
        first: bool = False,
        begins: bool = False,
        began: int | None = None,
    ) -> Span:
        """A span as of `spans.span`; `began`: unix nanoseconds, None = now."""
        above = _extract(parent) if parent else None
        context = _span_context(above)
        if not (context.trace_flags.sampled or (begins and not context.is_valid)):
            return OFF
        token = _GIVEN.set(context if first else None)
        try:
            return _Recorded(
                self._tracer.start_span(
                    name, Context() if first else above, attributes=_prefixed(attributes), start_time=began
                )
            )
        finally:
            _GIVEN.reset(token)

    def carrier(self) -> dict[str, str]:
        """The current span as headers of a request."""
        return _inject(None)

    @contextmanager
    def under(self, headers: Iterable[tuple[str, str | bytes]]) -> Iterator[None]:
        """Inside, spans are children of the span that `headers` carry, if they do."""
        found = next((value for key, value in headers if key == _KEY), "")
        token = attach(_extract(found if isinstance(found, str) else ""))
        try:
            yield
        finally:
            detach(token)


def _extract(traceparent: str) -> Context:
    return _PROPAGATOR.extract({_KEY: traceparent}, Context())


def _inject(context: Context | None) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return carrier


def _span_context(context: Context | None) -> trace.SpanContext:
    return trace.get_current_span(context).get_span_context()


def _prefixed(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {_PREFIX + key: value for key, value in attributes.items()}
