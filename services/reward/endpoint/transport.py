"""Connections to checked addresses only.

A name is resolved here, all its addresses are checked, and the connection goes to one of the checked ones: nothing
resolves it a second time (DNS rebinding). TLS and the Host header keep the name.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

import httpx

from headrace.services.reward.endpoint.addresses import Address
from headrace.services.reward.endpoint.errors import AddressForbiddenError
from headrace.services.reward.endpoint.target import Target

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Name and port -> its addresses, as text. Raises OSError."""

_CONNECT_S = 5.0
"""For one address, where a name has several."""
_KNOWN_S = 10.0
"""A name is resolved again after so long."""


class SystemResolver:
    """The system's resolver, on a thread of its own: others may fill the loop's threads for long."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="resolve")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """All addresses of the name."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, _look_up, host, port)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """Waits for nothing."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class PinnedTransport(httpx.AsyncBaseTransport):
    """An httpx transport that connects to what it has checked."""

    def __init__(
        self, target: Target, resolve: Resolve, tls: ssl.SSLContext, *, connections: int, attempt_s: float
    ) -> None:
        """`connections` are kept open; `attempt_s` bounds a request, so an address may only take a part of it."""
        self._target, self._resolve, self._attempt_s = target, resolve, attempt_s
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=connections)
        self._inner = httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits)
        self._turn = asyncio.Lock()
        self._known: list[Address] = []
        self._known_until = 0.0
        self._worked: Address | None = None
        """The address that took the last connection: it is tried first."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Tries the checked addresses in turn; raises AddressForbiddenError before anything is sent."""
        failure: httpx.TransportError = httpx.ConnectError(f"{self._target.host} has no address")
        addresses = sorted(await self._addresses(), key=lambda one: one != self._worked)
        connect_s = None if len(addresses) == 1 else min(_CONNECT_S, self._attempt_s / (len(addresses) + 1))
        for address in addresses:
            try:
                answer = await self._inner.handle_async_request(self._pinned(request, address, connect_s))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
            else:
                self._worked = address
                return answer
        self._known_until = 0.0
        raise failure

    async def aclose(self) -> None:
        """Drops all connections."""
        await self._inner.aclose()

    async def look(self) -> list[Address]:
        """The checked addresses, looked up now. Raises AddressForbiddenError, httpx.ConnectError."""
        if self._target.address is not None:
            found = [self._target.address]
        else:
            try:
                names = await self._resolve(self._target.host, self._target.port)
                found = [ip_address(text) for text in names]
            except (OSError, ValueError) as error:
                raise httpx.ConnectError(f"{self._target.host}: {error}") from error
        for address in found:
            kind = self._target.why_forbidden(address)
            if kind is not None:
                raise AddressForbiddenError(f"{self._target.host} is {kind} address ({address})")
        return found

    async def _addresses(self) -> list[Address]:
        async with self._turn:  # No longer than one look-up, which the request's own deadline ends.
            now = asyncio.get_running_loop().time()
            if now >= self._known_until:
                self._known = await self.look()
                self._known_until = now + _KNOWN_S
            return self._known

    def _pinned(self, request: httpx.Request, address: Address, connect_s: float | None) -> httpx.Request:
        timeout = {**request.extensions.get("timeout", {}), "connect": connect_s}
        return httpx.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions | {"sni_hostname": self._target.host, "timeout": timeout},
        )
