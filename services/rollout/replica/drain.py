"""Graceful retirement of a replica: it takes no more prompts and finishes those that it has.

    python -P -m headrace.services.rollout.replica.drain --port 8080 --seconds 600

requests this from the replica on this machine and returns when nothing is in flight; a container orchestrator runs it
before it sends SIGTERM, at which remaining groups are handed back at once. A retired replica gets no new weights and no
chats, its share goes to the others, and prompts that it holds for newer weights are handed back.
"""

import argparse
import ipaddress
import time
from typing import Protocol

import httpx
from fastapi import FastAPI, HTTPException, Request

from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.groups import GroupGenerator

_ASK_S = 5.0
_LOOK_S = 0.5


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
    """Adds the route; only local programs may call it."""

    @app.post("/drain")
    async def drain(request: Request) -> dict[str, int]:
        """Retires the replica; returns how many groups are still in flight."""
        caller = request.client.host if request.client else ""
        json = request.headers.get("content-type", "").startswith("application/json")
        # A web page in a local browser cannot send this content type without a CORS preflight.
        if not (json and caller and ipaddress.ip_address(caller).is_loopback):
            raise HTTPException(403, "only from this machine, as application/json")
        replica.retire()
        return {"in_flight": replica.in_flight}


def drain_replica(port: int, seconds: float) -> int:
    """Polls until nothing is in flight; returns the groups left after `seconds`, or 0 if no replica answers."""
    end = time.monotonic() + seconds
    left = 0
    while True:
        try:
            answer = httpx.post(f"http://127.0.0.1:{port}/drain", json={}, timeout=_ASK_S, trust_env=False)
            left = int(answer.raise_for_status().json()["in_flight"])
        except httpx.TransportError:
            return 0  # Not started yet, or gone: it holds nothing.
        if not left or time.monotonic() > end:
            return left
        time.sleep(_LOOK_S)


def main() -> None:
    """Command line entry; groups that are left are handed back at the SIGTERM that follows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    drain_replica(options.port, options.seconds)


if __name__ == "__main__":
    main()
