"""Mutual TLS of gRPC: a server that asks for a certificate of the run's authority, channels that show one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import grpc

from headrace.wire.access.certificates import Certificates, name_of
from headrace.wire.access.process import ProcessAccess
from headrace.wire.access.roles import Role

ChannelOptions = tuple[tuple[str, int | str], ...]


def server_credentials(access: ProcessAccess) -> grpc.ServerCredentials | None:
    """Credentials of a server; None if the process does not encrypt. Raises ConfigError for unusable certificates.

    Each handshake is made with the certificates as they are then: a rotation needs no restart.
    """
    first = access.certificates()
    if first is None:
        return None

    def fetch() -> grpc.ServerCertificateConfiguration:
        return _configuration(access.certificates() or first)

    return grpc.dynamic_ssl_server_credentials(_configuration(first), fetch, require_client_authentication=True)


def _configuration(found: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(found.key, found.chain)], root_certificates=found.authority)


class SecureChannel(grpc.aio.Channel):
    """A channel over mutual TLS, whose calls begin with the certificates as they are then; running calls go on."""

    def __init__(self, address: str, access: ProcessAccess, serves: Role | None, options: ChannelOptions) -> None:
        """`serves`: the role that the server's certificate must name; None = its host. Raises ConfigError."""
        self._address, self._access = address, access
        self._options = options if serves is None else (*options, ("grpc.ssl_target_name_override", name_of(serves)))
        self._closing: set[asyncio.Task[None]] = set()
        self._now = self._connect(self._certificates())

    def _certificates(self) -> Certificates:
        found = self._access.certificates()
        assert found is not None, "a process without certificates has no secure channels"
        return found

    def _connect(self, shown: Certificates) -> "_Connection":
        credentials = grpc.ssl_channel_credentials(shown.authority, shown.key, shown.chain)
        return _Connection(shown, grpc.aio.secure_channel(self._address, credentials, options=self._options))

    def _current(self) -> "_Connection":
        shown = self._certificates()
        if shown is not self._now.shown:
            before, self._now = self._now, self._connect(shown)
            before.retired = True
            self._close_if_idle(before)
        return self._now

    def _close_if_idle(self, connection: "_Connection") -> None:
        if connection.retired and not connection.calls:
            task = asyncio.ensure_future(connection.channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _method(self, kind: str, method: str, *codec: object, **more: object) -> Callable[..., grpc.aio.Call]:
        """What a stub calls: `kind` is the channel's function that makes it, the rest are that function's arguments."""

        def start(*args: object, **options: object) -> grpc.aio.Call:
            connection = self._current()
            call: grpc.aio.Call = getattr(connection.channel, kind)(method, *codec, **more)(*args, **options)
            connection.calls += 1

            def ended(_: object) -> None:
                connection.calls -= 1
                self._close_if_idle(connection)

            call.add_done_callback(ended)
            return call

        return start

    def unary_unary(self, method: str, *args: object, **options: object) -> Any:
        """As grpc.aio has it."""
        return self._method("unary_unary", method, *args, **options)

    def unary_stream(self, method: str, *args: object, **options: object) -> Any:
        """As grpc.aio has it."""
        return self._method("unary_stream", method, *args, **options)

    def stream_unary(self, method: str, *args: object, **options: object) -> Any:
        """As grpc.aio has it."""
        return self._method("stream_unary", method, *args, **options)

    def stream_stream(self, method: str, *args: object, **options: object) -> Any:
        """As grpc.aio has it."""
        return self._method("stream_stream", method, *args, **options)

    async def close(self, grace: float | None = None) -> None:
        """Closes the connection of now; one that is retired ends with its last call."""
        await self._now.channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """State of the connection of now."""
        return self._current().channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits until the connection of now has another state; the caller has the deadline."""
        await self._now.channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until the connection of now is made; the caller has the deadline."""
        await self._current().channel.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@dataclass(eq=False, slots=True)
class _Connection:
    """A channel of gRPC with the certificates that it shows, and the number of its calls."""

    shown: Certificates
    channel: grpc.aio.Channel
    calls: int = 0
    retired: bool = False
