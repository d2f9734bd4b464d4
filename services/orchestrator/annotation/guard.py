"""Who may ask for the page and its API: this machine's own browser pages, under a name that is this service's.

Against DNS rebinding the Host header must name loopback, the bound address, or a host of the settings. Against other
sites' pages an act must come as JSON from the same origin.
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATHS = ("/annotate", "/api/annotation")
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
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
    "Cache-Control": "no-store",
}
"""On every answer."""


class Guard:
    """Stands before an app; looks at nothing but `PATHS`."""

    def __init__(self, app: ASGIApp, bound: str, hosts: Sequence[str] = ()) -> None:
        """`bound` is the address that the server listens on, `hosts` are further names for it."""
        self._app, self._bound = app, bound
        self._hosts = {host.lower() for host in (*hosts, bound, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses, or passes on and adds the headers."""
        if scope["type"] != "http" or not is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        problem = self.problem(scope["method"], Headers(scope=scope))
        if problem is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await JSONResponse({"error": problem}, 403)(scope, receive, send_with_headers)

    def problem(self, method: str, headers: Headers) -> str | None:
        """Why a request is refused; None = it may pass."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return f"this service is not {host!r}; ask for it as localhost, or add the name to annotation_hosts"
        if method in ("GET", "HEAD"):
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return "an act must come as application/json"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return "an act must tell its Origin"
        if (origin is not None and urlsplit(origin).netloc != host) or site not in (None, "same-origin"):
            return "an act must come from this service's own page"
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
        # A rebound name is a name; who asks for an address means it.
        return address.is_loopback or self._bound in ("0.0.0.0", "::")


def is_guarded(path: str) -> bool:
    """Whether a path is the page's or its API's."""
    return any(path == one or path.startswith(f"{one}/") for one in PATHS)
