"""The HTTP of a service: the routes that all have, the guard before every route, and the server with its bounds."""

from headrace.wire.http.app import admin_app
from headrace.wire.http.bodies import Bodies, BodyLimits
from headrace.wire.http.error_replies import act_refusals, chat_refusals, read_refusals
from headrace.wire.http.guard import Guard, HttpPolicy
from headrace.wire.http.route_roles import RolesOf, RouteRoles, bearer_of
from headrace.wire.http.server import HttpServer, serve_http, serve_socket

__all__ = [
    "Bodies",
    "BodyLimits",
    "Guard",
    "HttpPolicy",
    "HttpServer",
    "RolesOf",
    "RouteRoles",
    "act_refusals",
    "admin_app",
    "bearer_of",
    "chat_refusals",
    "read_refusals",
    "serve_http",
    "serve_socket",
]
