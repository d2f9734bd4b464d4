"""Refuses calls of a gRPC server that come without the token, or the certificate, of a role that their method names."""

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from headrace.wire.access.certificates import roles_named
from headrace.wire.access.process import ProcessAccess, token_in
from headrace.wire.access.rate import MOST_PER_S, CallRate
from headrace.wire.access.roles import ALLOWED, Role
from headrace.wire.telemetry import metrics
from headrace.wire.telemetry.logs import get_logger

log = get_logger("headrace.wire.access")
_QUIET_S = 10.0
"""Between two lines of the log: a flood of calls must not fill the disk."""
_NAMES = "x509_subject_alternative_name"
"""gRPC's property of a caller's certificate."""
_KINDS = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}
"""Whether request and response are streams -> what gRPC calls the method's handler."""
_Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"


class AccessInterceptor(grpc.aio.ServerInterceptor):
    """Lets a call through if its token's role may make it, and over TLS if its certificate is of that role too."""

    def __init__(self, access: ProcessAccess) -> None:
        self._access = access
        self._rate = CallRate()
        self._quiet_until = 0.0

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The method's handler, or one that refuses."""
        allowed = ALLOWED.get(details.method, frozenset())
        roles = self._access.tokens().roles_of(token_in(details.invocation_metadata))
        code, text = grpc.StatusCode.PERMISSION_DENIED, f"{details.method} is not for {_words(roles)}"
        if not roles:
            code, text = grpc.StatusCode.UNAUTHENTICATED, "the call has no token that is accepted here"
        if roles & allowed:
            if self._rate.admits(roles & allowed, details.method):
                handler = await continuation(details)
                return self._with_certificate(handler, details.method, roles) if self._access.encrypts else handler
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            text = f"{_words(roles)} called {details.method} more than {MOST_PER_S:g} times a second"

        async def refuse(unread: object, context: _Context) -> None:
            await self._refuse(context, details.method, code, text)

        # As a handler of streams, since that of a single message would read it first: up to 64 MB from strangers.
        return grpc.stream_unary_rpc_method_handler(refuse)

    def _with_certificate(self, handler: object, method: str, roles: frozenset[Role]) -> object:
        """The handler, behind a look at the caller's certificate: only a call's context has it."""

        async def check(context: _Context) -> None:
            shown = roles_named(context.auth_context().get(_NAMES, ()))
            if not shown & roles & ALLOWED[method]:
                text = f"{method}: the token is of {_words(roles)}, the certificate of {_words(shown) or 'no role'}"
                await self._refuse(context, method, grpc.StatusCode.PERMISSION_DENIED, text)

        return None if handler is None else _checked_first(handler, check)

    async def _refuse(self, context: _Context, method: str, code: grpc.StatusCode, text: str) -> None:
        metrics.RPC_REFUSED.labels(code.name.lower()).inc()
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_S
            log.warning("rpc_refused", method=method if method in ALLOWED else "unknown", error=text)
        await context.abort(code, text)


def _words(roles: frozenset[Role]) -> str:
    return ", ".join(sorted(roles))


def _checked_first(handler: Any, check: Callable[[_Context], Awaitable[None]]) -> object:
    """A handler of the same kind that awaits `check(context)` first."""
    kind = _KINDS[handler.request_streaming, handler.response_streaming]
    inner = getattr(handler, kind)

    async def answer(request: object, context: _Context) -> object:
        await check(context)
        return await inner(request, context)

    async def stream(request: object, context: _Context) -> AsyncIterator[object]:
        await check(context)
        async for one in inner(request, context):
            yield one

    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(
        stream if inspect.isasyncgenfunction(inner) else answer,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
