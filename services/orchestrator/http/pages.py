"""What the guard lets in where pages are served: acts of the own pages, programs that chat, and each route's roles."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.services.orchestrator.http.chat_request import MOST_BYTES
from headrace.wire.access.roles import Role
from headrace.wire.http import BodyLimits, HttpPolicy, RolesOf, RouteRoles

_PROGRAMS = "/v1/"
FREE = frozenset(
    {
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /openapi.json",
        "GET /",
        "GET /assets/{name:path}",
        "GET /{name}",
        "GET /annotate",
    }
)
"""Probes, numbers for Prometheus, and files of the installation: nothing that the run was given or has made."""
_READS = frozenset({Role.VIEWER, Role.OPERATOR})
_ACTS = frozenset({Role.OPERATOR})
_VOTES = frozenset({Role.ANNOTATOR, Role.OPERATOR})
ROLES: Mapping[str, frozenset[Role]] = MappingProxyType(
    {
        "GET /api/status": _READS,
        "GET /api/fleet": _READS,
        "GET /api/series": _READS,
        "GET /api/why/{step}": _READS,
        "GET /api/events": _READS,
        "GET /api/log": _READS,
        "GET /api/rollouts": _READS,
        "GET /api/rollouts/export": _READS,
        "GET /api/rollouts/{step}/{group_index}": _READS,
        "GET /api/queues": _READS,
        "GET /api/dead": _READS,
        "GET /api/runs": _READS,
        "GET /api/compare": _READS,
        "GET /v1/models": _READS,
        "POST /v1/chat/completions": _READS,
        "POST /api/actions/pause": _ACTS,
        "POST /api/actions/resume": _ACTS,
        "POST /api/actions/checkpoint": _ACTS,
        "POST /api/actions/stop": _ACTS,
        "POST /api/actions/scale": _ACTS,
        "POST /api/actions/drain": _ACTS,
        "POST /api/dead/{entry}/requeue": _ACTS,
        # An annotator judges what this shows, and sees nothing else of the run.
        "GET /api/annotation/next": _VOTES | _READS,
        "POST /api/annotation/votes": _VOTES,
        "POST /api/annotation/undo": _VOTES,
    }
)
"""The roles of every other route: one that is added is refused to all until it is listed here."""


def page_policy(bound: str, roles_of: RolesOf, *, hosts: tuple[str, ...] = ()) -> HttpPolicy:
    """`bound`: the address that the server listens on; `roles_of`: which roles a token has."""
    return HttpPolicy(
        bound=bound,
        hosts=hosts,
        hosts_key="orchestrator.http_hosts",
        programs=(_PROGRAMS,),
        roles=RouteRoles(FREE, ROLES, roles_of),
        limits=BodyLimits(larger={_PROGRAMS: MOST_BYTES}),
    )
