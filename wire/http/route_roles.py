"""Which roles may call each HTTP route: a caller shows what it is by the token of a role, as a caller of gRPC does."""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from headrace.wire.access.process import ProcessAccess, token_in
from headrace.wire.access.roles import Role
from headrace.wire.api.error_reply import NEEDS_TOKEN, NOT_FOR

RolesOf = Callable[[str], frozenset[Role]]
"""Token -> its roles; none for one that is not accepted. A request without a token has the empty one."""
_REFUSED = "unlisted"
"""Stands for a request that no route takes, such as one with another method: what it may learn, any role may."""


def bearer_of(headers: Headers) -> str:
    """The token that a request gives; empty if it gives none, or several."""
    return token_in(tuple(("authorization", one) for one in headers.getlist("authorization")))


@dataclass(frozen=True, slots=True)
class RouteRoles:
    """The roles of an app's routes. A route is `METHOD /its/{path}`; one that is not listed is refused to all."""

    free: frozenset[str]
    """Routes that need no token."""
    roles: Mapping[str, frozenset[Role]]
    """Every other route -> the roles that may call it."""
    roles_of: RolesOf

    def problem(self, scope: Scope, headers: Headers) -> tuple[int, str, str] | None:
        """Why a request is refused: HTTP status, a word for the metric, and a sentence; None = it is not."""
        route = _route(scope)
        if route in self.free:
            return None
        given = self.roles_of(bearer_of(headers))
        if not given:
            return 401, "token", f"{NEEDS_TOKEN} of the run that is accepted here: Authorization: Bearer TOKEN"
        if route != _REFUSED and not given & self.roles.get(route, frozenset()):
            allowed = ", ".join(sorted(self.roles.get(route, ()))) or "no role"
            return 403, "role", f"{route} is for {allowed}{NOT_FOR}{', '.join(sorted(given))}"
        return None


def route_name(method: str, path: str) -> str:
    """A route as the tables have it; HEAD is a read of it."""
    return f"{'GET' if method == 'HEAD' else method} {path}"


def _route(scope: Scope) -> str:
    """The route that the app's router takes for the request: the first that matches."""
    app = scope["app"]
    assert isinstance(app, FastAPI)
    found: BaseRoute
    for found in app.routes:
        if found.matches(scope)[0] is Match.FULL:
            return route_name(scope["method"], getattr(found, "path", ""))
    return _REFUSED


def accepted(access: ProcessAccess | None, further: str = "", role: Role = Role.OPERATOR) -> RolesOf:
    """Roles by the tokens that the process accepts, as they are now, and by a further token of a role.

    Without either nothing is accepted. Raises ConfigError if the tokens cannot be read.
    """
    if access is not None:
        access.tokens()

    def roles_of(token: str) -> frozenset[Role]:
        roles = access.tokens().roles_of(token) if access is not None else frozenset()
        # Compared in any case: an answer takes as long for either.
        is_further = hmac.compare_digest(token.encode(), further.encode()) and bool(further)
        return roles | {role} if is_further else roles

    return roles_of
