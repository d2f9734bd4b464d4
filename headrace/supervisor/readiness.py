"""Polls a child's health server for readiness, and the orchestrator for the status of the run."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import httpx

from headrace.wire.api.error_reply import words_of
from headrace.wire.api.model import read_answer_of
from headrace.wire.api.status import RunStatus
from headrace.wire.errors import HeadraceError, TransientError, WaitTimeoutError

_POLL_S = 0.1
_ANSWER_S = 5.0
_REFUSES = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


class StatusRefusedError(HeadraceError):
    """The orchestrator answers, and does not accept the token for its status. The message has its words."""


class ReadinessClient:
    """One HTTP client for all children on this machine."""

    def __init__(self) -> None:
        # trust_env: a proxy of the environment is not for loopback.
        self._http = httpx.AsyncClient(timeout=_ANSWER_S, trust_env=False)

    async def wait_until_ready(self, name: str, port: int, seconds: float) -> None:
        """Waits until `/readyz` returns 200. Raises WaitTimeoutError with the last reason."""
        end = time.monotonic() + seconds
        reason = None
        while time.monotonic() < end:
            reason = await self.look(port, _ANSWER_S)
            if reason == "":
                return
            await asyncio.sleep(_POLL_S)
        raise WaitTimeoutError(f"{name} to become ready ({reason or 'it does not answer'})", seconds)

    async def look(self, port: int, seconds: float) -> str | None:
        """Returns why it is not ready, empty = it is ready; None = it does not answer at all."""
        try:
            answer = await self._http.get(f"http://127.0.0.1:{port}/readyz", timeout=seconds)
            return "" if answer.status_code == 200 else str(answer.json().get("reason", answer.status_code))
        except httpx.HTTPError:
            return None
        except ValueError:
            return "its answer is not JSON"

    async def answers(self, port: int, seconds: float) -> str | None:
        """Returns an empty text if it answers at all, else None: for services that are often briefly not ready."""
        return None if await self.look(port, seconds) is None else ""

    def probe(self, name: str, port: int) -> Callable[[float], Awaitable[str | None]]:
        """What asks one child again and again; a reward service that is not ready has a scorer that is down."""
        return partial(self.look if name.startswith("reward-") else self.answers, port)

    async def status(self, port: int, token: str) -> RunStatus:
        """Returns the orchestrator's status; `token`: of a role that may read it, empty = none is known.

        Raises TransientError while it does not answer, StatusRefusedError if it does not accept the token, ConfigError
        if it is of another version of Headrace.
        """
        # An empty token would make a header that cannot be sent.
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer = await self._http.get(f"http://127.0.0.1:{port}/api/status", headers=headers)
            if answer.status_code in _REFUSES:
                raise StatusRefusedError(words_of(answer.text) or answer.reason_phrase)
            answer.raise_for_status()
            status = answer.json()
        except httpx.LocalProtocolError as error:
            raise StatusRefusedError(f"it cannot be sent: {error}") from None
        except (httpx.HTTPError, ValueError) as error:
            raise TransientError(f"the orchestrator does not answer: {error}") from error
        return read_answer_of(RunStatus, status, f"the orchestrator on port {port}")

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()
