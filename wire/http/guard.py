"""The guard of a service's HTTP: only this service's own browser pages may send requests.

Against DNS rebinding, the Host header must name loopback, the bound address, or a host of the settings. Against
cross-site requests, acts must be sent as JSON, and not from another origin. Where routes have roles, a request needs
the token of one (`route_roles.py`), and keeps its answer only as long as that token is accepted. Bodies are bounded
(`bodies.py`).
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.wire.config.settings import ServiceSettings
from headrace.wire.http.bodies import READS, SMALL, Bodies, BodyLimits
from headrace.wire.http.error_replies import error_response
from headrace.wire.http.refusals import note_refusal
from headrace.wire.http.revoked_streams import until_refused
from headrace.wire.http.route_roles import RouteRoles

OPEN_PATHS = ("/healthz", "/readyz", "/metrics")
"""Read under any Host: probes and Prometheus ask for a pod by its address, or by a name that no setting lists.

A rebound page could read them too: that a process is ready, and numbers of the run, but nothing that was trained on.
"""
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
_CHALLENGES = {401: "Bearer", 403: 'Bearer error="insufficient_scope"'}
"""Status of a refusal by role -> RFC 6750's challenge: that another token would do. No other 403 has one."""


@dataclass(frozen=True, slots=True)
class HttpPolicy:
    """What the HTTP of one service lets in; the defaults are for programs on this machine alone."""

    bound: str = "127.0.0.1"
    """The address that the server listens on."""
    hosts: tuple[str, ...] = ()
    """Further names of it."""
    hosts_key: str = ""
    """The key of the config that adds such a name; empty = there is none."""
    programs: tuple[str, ...] = ("/",)
    """Beginnings of paths that programs call, which send no Origin; browsers send one with every act."""
    roles: RouteRoles | None = None
    """Who may call each route; None = no table of roles: a route may still ask for a token by itself."""
    limits: BodyLimits = SMALL
    """Bounds of the bodies."""

    @staticmethod
    def of(
        settings: ServiceSettings, *, hosts: tuple[str, ...] = (), hosts_key: str = "", limits: BodyLimits = SMALL
    ) -> "HttpPolicy":
        """That of a service whose routes are for programs; the name that peers reach it by is one of its hosts."""
        return HttpPolicy(bound=settings.host, hosts=(*hosts, settings.reach), hosts_key=hosts_key, limits=limits)


class Guard:
    """ASGI middleware that checks every request, but for reads of `OPEN_PATHS`."""

    def __init__(self, app: ASGIApp, policy: HttpPolicy) -> None:
        self._app, self._policy = app, policy
        self._bodies = Bodies(app, policy.limits)
        self._hosts = {host.lower() for host in (*policy.hosts, policy.bound, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses the request, or forwards it; adds the headers to the response."""
        if scope["type"] != "http" or (scope["path"] in OPEN_PATHS and scope["method"] in READS):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, send_with_headers)
        elif self._policy.roles is None:
            await self._bodies(scope, receive, send_with_headers)
        else:
            sent = until_refused(send_with_headers, lambda: self._refused(scope) is not None)
            await self._bodies(scope, receive, sent)

    def problem(self, method: str, path: str, headers: Headers) -> tuple[str, str] | None:
        """Why a request is refused, as a word for the metric and in a sentence; None = it is not."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            key = self._policy.hosts_key
            way_out = f", or add the name to {key}" if key else " or by its address"
            return "host", f"this service is not {host!r}; ask for it as localhost{way_out}"
        if method in READS:
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return "content_type", "an act must come as application/json"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return None if path.startswith(self._policy.programs) else ("origin", "an act must have an Origin header")
        if (origin is not None and _netloc(origin) != host) or site not in (None, "same-origin"):
            return "origin", "an act must come from this service's own page"
        return None

    def _refused(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        problem = self.problem(scope["method"], scope["path"], headers)
        if problem is not None:
            note_refusal(*problem)
            return error_response(scope["path"], 403, problem[1])
        denied = self._policy.roles.problem(scope, headers) if self._policy.roles is not None else None
        if denied is None:
            return None
        status, reason, words = denied
        note_refusal(reason, words)
        return error_response(scope["path"], status, words, {"WWW-Authenticate": _CHALLENGES[status]})

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
        return address.is_loopback or self._policy.bound in ("0.0.0.0", "::")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""  # Such as `http://[`.
