"""Graceful retirement of a replica: it takes no more prompts and finishes its current ones.

    python -P -m headrace.services.rollout.replica.drain --config RUN/config/rollout.json --seconds 600

requests this from the replica on this machine, with the token of the service, and returns when nothing is in flight; a
container orchestrator runs it before it sends SIGTERM, at which remaining groups are handed back at once. A retired
replica gets no new weights and no chats, its share goes to the others, and prompts that it holds for newer weights are
handed back.
"""

import argparse
import ipaddress
import sys
import time
from pathlib import Path
from typing import Protocol

import httpx
from fastapi import FastAPI, HTTPException, Request

from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.access import process as process_access
from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError
from headrace.wire.http import act_refusals, bearer_of
from headrace.wire.process.entry import REFUSED, read_settings
from headrace.wire.rundir.layout import RunPaths

_ASK_S = 5.0
_LOOK_S = 0.5
_MAY = frozenset({Role.ROLLOUT, Role.OPERATOR})
"""Roles that may retire a replica: itself, from its container, and a person."""


class Drainable(Protocol):
    """An object that can be asked to take no more prompts."""

    def retire(self) -> None:
        """Stops taking prompts, permanently."""
        ...

    @property
    def in_flight(self) -> int:
        """Number of groups in flight."""
        ...


def why_not_ready(gate: Gate, generator: GroupGenerator) -> str | None:
    """None while prompts are taken, or will be after a publication; otherwise the reason."""
    return "draining: it takes no more prompts" if generator.retired else gate.why_not_ready()


def add_drain(app: FastAPI, replica: Drainable) -> None:
    """Adds the route: for programs of this machine that have a token of the service or of an operator.

    Retiring cannot be undone, and other users of the machine reach the port, too.
    """

    @app.post("/drain", responses=act_refusals(401))
    async def drain(request: Request) -> dict[str, int]:
        """Retires the replica; returns how many groups are still in flight."""
        caller = request.client.host if request.client else ""
        if not (caller and ipaddress.ip_address(caller).is_loopback):
            raise HTTPException(403, "only from this machine")
        access = process_access.current()
        if access is not None and not access.tokens().roles_of(bearer_of(request.headers)) & _MAY:
            words = "this needs the token of a rollout service or operator: Authorization: Bearer TOKEN"
            raise HTTPException(401, words, headers={"WWW-Authenticate": "Bearer"})
        replica.retire()
        return {"in_flight": replica.in_flight}


def drain_replica(port: int, seconds: float, headers: tuple[tuple[str, str], ...] = ()) -> int:
    """Polls until nothing is in flight; returns the groups left after `seconds`, or 0 if no replica answers.

    `headers` carry the token. Raises ConfigError if the replica refuses.
    """
    url = f"http://127.0.0.1:{port}/drain"
    end = time.monotonic() + seconds
    left = 0
    while True:
        try:
            answer = httpx.post(url, json={}, headers=list(headers), timeout=_ASK_S, trust_env=False)
            left = int(answer.raise_for_status().json()["in_flight"])
        except httpx.TransportError:
            return 0  # Not started yet, or gone: it holds nothing.
        except httpx.HTTPStatusError as error:
            raise ConfigError(f"{url}: {error.response.status_code} {error.response.text[:200]}") from error
        if not left or time.monotonic() > end:
            return left
        time.sleep(_LOOK_S)


def main() -> int:
    """Command line entry; groups that are left are handed back at the SIGTERM that follows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="the settings file of the replica")
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    try:
        settings = read_settings(RolloutSettings, options.config)
        if not settings.http_port:
            raise ConfigError(f"{options.config}: http_port is 0, any free one: give the replica a port of its own")
        process_access.use(Role.ROLLOUT, settings.tokens or RunPaths(settings.run_dir).tokens, makes=False)
        drain_replica(settings.http_port, options.seconds, process_access.credentials())
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
