"""The end of a replica that is not in a hurry: it takes no more prompts and finishes those that it has.

    python -P -m services.rollout.drain --port 8080 --seconds 600

asks the replica on this machine for it and returns when nothing is in flight: what an orchestrator of containers runs
before it sends SIGTERM, which hands back at once what is left. From then on the run counts without it: it gets no new
weights and no chats, its share goes to the others, and prompts that it holds for newer weights are handed back.
"""

import argparse
import ipaddress
import time
from typing import Protocol

import httpx
from fastapi import FastAPI, HTTPException, Request

from services.rollout.gate import Gate
from services.rollout.groups import GroupGenerator

_ASK_S = 5.0
_LOOK_S = 0.5


class Retiring(Protocol):
    """Whatever can be asked to take no more prompts."""

    def retire(self) -> None:
        """No more prompts, for good."""
        ...

    @property
    def in_flight(self) -> int:
        """Groups."""
        ...


def why_not_ready(gate: Gate, generator: GroupGenerator) -> str | None:
    """None while prompts are taken, or will be after a publication; else the reason."""
    return "draining: it takes no more prompts" if generator.retired else gate.why_not_ready()


def add_drain(app: FastAPI, replica: Retiring) -> None:
    """Adds the route; only this machine's own programs may ask."""

    @app.post("/drain")
    async def drain(request: Request) -> dict[str, int]:
        """No more prompts; tells how many groups are still in flight."""
        caller = request.client.host if request.client else ""
        json = request.headers.get("content-type", "").startswith("application/json")
        # The content type: a page in a browser on this machine cannot send it without asking first.
        if not (json and caller and ipaddress.ip_address(caller).is_loopback):
            raise HTTPException(403, "only from this machine, as application/json")
        replica.retire()
        return {"in_flight": replica.in_flight}


def drain_replica(port: int, seconds: float) -> int:
    """Asks until nothing is in flight; returns what is left after `seconds`, or when no replica answers (0)."""
    end = time.monotonic() + seconds
    left = 0
    while True:
        try:
            answer = httpx.post(f"http://127.0.0.1:{port}/drain", json={}, timeout=_ASK_S, trust_env=False)
            left = int(answer.raise_for_status().json()["in_flight"])
        except httpx.TransportError:
            return 0  # Not there yet, or not any more: it holds nothing.
        if not left or time.monotonic() > end:
            return left
        time.sleep(_LOOK_S)


def main() -> None:
    """Its command line; whatever is left is handed back by the SIGTERM that follows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    drain_replica(options.port, options.seconds)


if __name__ == "__main__":
    main()
