"""Access control of the HTTP API: of browser pages, only those of this service may send requests.

Against DNS rebinding, the Host header must name loopback, the bound address, or a host of the settings. Against
cross-site requests, actions must be sent as JSON from the same origin. If an operator token is set, they need it too.
"""

import hmac
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.wire.errors import ConfigError

OPEN_PATHS = ("/healthz", "/readyz", "/metrics")
"""Open to any Host, for probes and Prometheus; they expose nothing that a hostile page could use."""
_PROGRAMS = "/v1/"
"""For programs, which send no Origin header; browsers always send one unless the request is a plain GET."""
_ANNOTATION = "/api/annotation/"
"""Votes are not operator actions and need no token."""
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "manifest-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Set on every response, along with `Cache-Control: no-store` unless the response sets it."""
_READS = ("GET", "HEAD")


class Guard:
    """ASGI middleware that checks every request except those to `OPEN_PATHS`."""

    def __init__(self, app: ASGIApp, bound: str, hosts: Sequence[str] = (), token: str = "") -> None:
        """`bound` is the address that the server listens on, `hosts` are further names for it.

        With a `token`, actions need `Authorization: Bearer TOKEN`.
        """
        self._app, self._bound, self._token = app, bound, token
        self._hosts = {host.lower() for host in (*hosts, bound, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses the request, or forwards it; adds the headers to the response."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(scope["method"], scope["path"], Headers(scope=scope))
        if refused is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await refused(scope, receive, send_with_headers)

    def problem(self, method: str, headers: Headers, *, program: bool = False) -> str | None:
        """Why a request is refused; None = accepted. A `program` may omit the Origin header."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return f"this service is not {host!r}; ask for it as localhost, or add the name to orchestrator.http_hosts"
        if method in _READS:
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return "an act must come as application/json"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return None if program else "an act must tell its Origin"
        if (origin is not None and _netloc(origin) != host) or site not in (None, "same-origin"):
            return "an act must come from this service's own page"
        return None

    def _refused(self, method: str, path: str, headers: Headers) -> JSONResponse | None:
        problem = self.problem(method, headers, program=path.startswith(_PROGRAMS))
        if problem is not None:
            return JSONResponse({"error": problem}, 403)
        if self._token and method not in _READS and not path.startswith(_ANNOTATION):
            told = headers.get("authorization", "").encode()
            if not hmac.compare_digest(told, f"Bearer {self._token}".encode()):
                words = "this needs the operator's token: Authorization: Bearer TOKEN"
                return JSONResponse({"error": words}, 401, {"WWW-Authenticate": "Bearer"})
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # DNS rebinding needs a name: a request to an IP address is deliberate.
        return address.is_loopback or self._bound in ("0.0.0.0", "::")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""  # Such as `http://[`.


def read_token(path: Path) -> str:
    """Reads the operator's token from its file; empty if none is configured (`.`). Raises ConfigError."""
    if path == Path():
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"orchestrator.operator_token_file: {path}: {error}") from None
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise ConfigError(f"orchestrator.operator_token_file: {path}: a token has 16 or more ASCII letters and digits")
    return token
