"""gRPC: one way to serve, one way to call. Every call has a deadline; errors keep their class across the border."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headrace.wire import tracing
from headrace.wire.access import process
from headrace.wire.access.guard import AccessInterceptor
from headrace.wire.access.roles import Role
from headrace.wire.access.transport import SecureChannel, server_credentials
from headrace.wire.errors import (
    ConfigError,
    ContractError,
    DiskError,
    ExhaustedError,
    FencedError,
    TransientError,
    WaitTimeoutError,
)
from headrace.wire.host import disk_fault
from headrace.wire.process import failpoints
from headrace.wire.telemetry.logs import get_logger

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
SMALL_MESSAGE_BYTES = 1024 * 1024
"""For servers that are asked in a few words."""
_WATCH_S = 1.0
UNIX = "unix:"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

_RECEIVES = "grpc.max_receive_message_length"
_SENDS = ("grpc.max_send_message_length", MAX_MESSAGE_BYTES)

_STATUS: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (ContractError, grpc.StatusCode.INVALID_ARGUMENT),
    (FencedError, grpc.StatusCode.FAILED_PRECONDITION),
    (ExhaustedError, grpc.StatusCode.RESOURCE_EXHAUSTED),  # Before its parent: the first that fits counts.
    (TransientError, grpc.StatusCode.UNAVAILABLE),
    (DiskError, grpc.StatusCode.UNAVAILABLE),  # The process is about to end; a caller waits for the next one.
    (WaitTimeoutError, grpc.StatusCode.DEADLINE_EXCEEDED),
)

Request = TypeVar("Request", contravariant=True)
Response = TypeVar("Response", covariant=True)
log = get_logger("headrace.wire.peers.rpc")


class Method(Protocol[Request, Response]):
    """A unary method of a grpc.aio stub."""

    def __call__(
        self, request: Request, *, timeout: float | None = None, metadata: tuple[tuple[str, str], ...] | None = None
    ) -> Awaitable[Response]:
        """Starts the call."""
        ...


class _ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Maps the project's errors to status codes; the only broad `except` of the RPC layer."""

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler
        inner, decode = handler.unary_unary, handler.request_deserializer

        async def guarded(data: bytes, context: "grpc.aio.ServicerContext[object, object]") -> object:
            try:
                request = _decoded(decode, data)
                with tracing.under(details.invocation_metadata):
                    answer = await inner(request, context)
                failpoints.reach(f"rpc.served.{details.method.rpartition('/')[2]}")
                return answer
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:
                if isinstance(error, DiskError):
                    disk_fault.note(error)
                code = next((code for kind, code in _STATUS if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
                if code is grpc.StatusCode.INTERNAL:
                    log.exception("rpc_failed", method=details.method)
                await context.abort(code, f"{type(error).__name__}: {error}")

        return grpc.unary_unary_rpc_method_handler(guarded, response_serializer=handler.response_serializer)


def _decoded(decode: Callable[[bytes], object] | None, data: bytes) -> object:
    """The request; gRPC's own decoding logs a traceback for each damaged one. Raises ContractError."""
    try:
        return data if decode is None else decode(data)
    except DecodeError as error:
        raise ContractError("bad_request", f"the request cannot be decoded: {error}") from error


class _Health:
    """`grpc.health.v1`: "" is served while the process answers, a service's name while it can do its work."""

    def __init__(self, names: Collection[str], ready: Callable[[], str | None]) -> None:
        self._names = names
        self._ready = ready

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: "grpc.aio.ServicerContext[object, object]"
    ) -> health_pb2.HealthCheckResponse:
        status = self._status(request.service)
        if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r} here")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(self, request: object, context: object) -> object:
        answers = {name: health_pb2.HealthCheckResponse(status=self._status(name)) for name in ("", *self._names)}
        return health_pb2.HealthListResponse(statuses=answers)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: object
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        last = None
        while True:
            status = self._status(request.service)
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
            last = status
            await asyncio.sleep(_WATCH_S)

    def _status(self, service: str) -> "health_pb2.HealthCheckResponse.ServingStatus":
        if not service:
            return health_pb2.HealthCheckResponse.SERVING
        if service not in self._names:
            return health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        ready = self._ready() is None
        return health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING


class RpcServer:
    """A running server with health and reflection."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self.port = 0
        self._server = server

    async def stop(self, grace_s: float = 1.0) -> None:
        """Refuses new calls, ends running ones after `grace_s` seconds."""
        await self._server.stop(grace_s)
        _RUNNING.discard(self)


_RUNNING: set[RpcServer] = set()
"""Keeps running servers referenced: grpc.aio stops a server that has been garbage-collected."""


async def serve(
    services: Mapping[str, Callable[[grpc.aio.Server], None]],
    host: str,
    port: int,
    *,
    ready: Callable[[], str | None] = lambda: None,
    most_bytes: int = MAX_MESSAGE_BYTES,
) -> RpcServer:
    """Starts a server; `services` maps full service names to functions that add the servicer.

    A request has at most `most_bytes`; none is read before its token was accepted.

    Port 0 takes a free one. `host` may be unix:PATH, without a port: a path of at most 107 bytes in a folder that only
    this user may enter; what a killed process has left there is replaced. `ready()` is asked, on this loop, for the
    health of the services: None, or why they cannot do their work now. Of a process that has a role each method is open
    to the roles that it names alone, and with certificates over mutual TLS alone. Raises ConfigError if the port is
    taken, for unusable tokens or certificates, and for a port beyond this machine without tokens.
    """
    access = process.current()
    if access is None and host not in _LOOPBACK and not host.startswith(UNIX):
        raise ConfigError(f"cannot listen on {host}:{port} without tokens: only 127.0.0.1 is served without them")
    guards, credentials = [], None
    if access is not None:
        access.tokens()
        guards, credentials = [AccessInterceptor(access)], server_credentials(access)
    options = ((_RECEIVES, most_bytes), _SENDS, ("grpc.so_reuseport", 0))
    server = grpc.aio.server(interceptors=[*guards, _ErrorInterceptor()], options=options)
    health_pb2_grpc.add_HealthServicer_to_server(_Health(services.keys(), ready), server)
    for add in services.values():
        add(server)
    names = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    running = RpcServer(server)
    place = host if host.startswith(UNIX) else f"{host}:{port}"
    try:
        running.port = server.add_secure_port(place, credentials) if credentials else server.add_insecure_port(place)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {place}: {error}; choose another grpc_port") from error
    await server.start()
    _RUNNING.add(running)
    return running


def channel(address: str, serves: Role | None = None) -> grpc.aio.Channel:
    """A channel that reconnects quickly: a restarted peer is found within a second.

    With certificates it goes over mutual TLS, to a server whose certificate names the role `serves`, or its host
    without. Raises ConfigError for certificates that cannot be used.
    """
    options = (
        (_RECEIVES, MAX_MESSAGE_BYTES),
        _SENDS,
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Else `grpc_proxy`, `https_proxy` and `http_proxy` of a container would send it out of the run's network.
        ("grpc.enable_http_proxy", 0),
    )
    access = process.current()
    if access is None or not access.encrypts:
        return grpc.aio.insecure_channel(address, options=options)
    return SecureChannel(address, access, serves, options)


def metadata() -> tuple[tuple[str, str], ...]:
    """What every call of this process carries: its token, and the trace that it belongs to."""
    return (*process.credentials(), *tracing.carrier().items())


async def call(method: Method[Request, Response], request: Request, *, timeout_s: float, what: str) -> Response:
    """Calls a unary method once; `what` names the wait in errors.

    Raises TransientError (peer away or too slow), ExhaustedError (peer full), FencedError, ContractError, or
    ConfigError for a peer that does not accept this process's token, RuntimeError for the peer's own bug.
    """
    try:
        failpoints.reach(f"rpc.before_call.{type(request).__name__}")
        answer = await method(request, timeout=timeout_s, metadata=metadata())
        failpoints.reach(f"rpc.answered.{type(request).__name__}")
        return answer
    except grpc.aio.AioRpcError as error:
        text = f"{what}: {error.details()}"
        match error.code():
            case grpc.StatusCode.FAILED_PRECONDITION:
                raise FencedError(text) from None
            case grpc.StatusCode.INVALID_ARGUMENT:
                raise ContractError("rejected", text) from None
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise ExhaustedError(text) from None
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
                raise TransientError(text) from None
            case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
                raise ConfigError(
                    f"{text}: processes of one run have the tokens of one folder, RUN/run/tokens, and certificates of "
                    "their own role"
                ) from None
            case code:
                raise RuntimeError(f"{what}: {code.name}: {error.details()}") from None
