"""Refuses calls of a gRPC server that come without the token of a role that their method names."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from headrace.wire import metrics
from headrace.wire.access.process import token_in
from headrace.wire.access.roles import ALLOWED, OPEN
from headrace.wire.access.tokens import Access
from headrace.wire.telemetry import get_logger

log = get_logger("headrace.wire.access")
_QUIET_S = 10.0
"""Between two lines of the log: a flood of calls must not fill the disk."""


class AccessInterceptor(grpc.aio.ServerInterceptor):
    """Lets a call through if its token's role may make it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._quiet_until = 0.0

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The method's handler, or one that refuses."""
        refused = self._refusal(details)
        if refused is None:
            return await continuation(details)
        code, text = refused
        known = details.method if details.method in ALLOWED else "unknown"
        metrics.RPC_REFUSED.labels(code.name.lower()).inc()
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_S
            log.warning("rpc_refused", method=known, error=text)

        async def refuse(request: object, context: "grpc.aio.ServicerContext[object, object]") -> None:
            await context.abort(code, text)

        return grpc.unary_unary_rpc_method_handler(refuse)

    def _refusal(self, details: grpc.HandlerCallDetails) -> tuple[grpc.StatusCode, str] | None:
        if details.method in OPEN:
            return None
        allowed = ALLOWED.get(details.method, frozenset())
        roles = self._access.roles_of(token_in(details.invocation_metadata))
        if not roles:
            return grpc.StatusCode.UNAUTHENTICATED, "the call has no token that is accepted here"
        if not roles & allowed:
            return grpc.StatusCode.PERMISSION_DENIED, f"{details.method} is not for {', '.join(sorted(roles))}"
        return None
