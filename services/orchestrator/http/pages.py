"""What the guard lets in where pages are served: acts of the own pages, and programs that chat."""

from headrace.services.orchestrator.http.chat_request import MOST_BYTES
from headrace.wire.http import BodyLimits, HttpPolicy

_PROGRAMS = "/v1/"


def page_policy(bound: str, *, hosts: tuple[str, ...] = (), token: str = "") -> HttpPolicy:
    """`bound`: the address that the server listens on; `token`: that of the operators, if acts need it."""
    return HttpPolicy(
        bound=bound,
        hosts=hosts,
        hosts_key="orchestrator.http_hosts",
        programs=(_PROGRAMS,),
        token=token,
        # Votes are not operator actions.
        tokenless=("/api/annotation/",),
        limits=BodyLimits(larger={_PROGRAMS: MOST_BYTES}),
    )
