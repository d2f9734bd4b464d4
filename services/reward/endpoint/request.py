"""The requests of one scorer call, which share a deadline."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.services.reward.endpoint.errors import EndpointError
from headrace.services.reward.scorer import Context
from headrace.wire.errors import ConfigError

_MOST_UNANSWERED = 4
"""So many requests in a row without an answer end those of their call that wait for a turn."""


class RequestBudget:
    """Time for all requests of one scorer call: `seconds` from the first request's turn on, however many there are."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None
        """End by the loop's clock; None = no request has had its turn."""
        self._why = f"not asked: the requests of its group used up {seconds:g} s"
        self._scopes: set[asyncio.Timeout] = set()
        self._unanswered = 0

    def begin(self, seconds: float) -> float:
        """One of its requests has its turn and may take so long; gives the time by which it ends.

        Raises EndpointError (`busy`) when it is too late for one.
        """
        now = asyncio.get_running_loop().time()
        if self._end is not None and now >= self._end:
            raise EndpointError("busy", self._why)
        if self._end is None:
            self._end_by(now + self._seconds)
        return min(now + seconds, self._end or now)

    def left_s(self) -> float:
        """How long its requests still have."""
        return self._seconds if self._end is None else max(0.0, self._end - asyncio.get_running_loop().time())

    def note(self, error: EndpointError | None) -> None:
        """How one of its requests ended; None = well."""
        self._unanswered = self._unanswered + 1 if error is not None and error.kind == "busy" else 0
        if self._unanswered == _MOST_UNANSWERED and error is not None:
            self._why = f"not asked: {_MOST_UNANSWERED} requests of its group in a row failed, the last so: {error}"
            self._end_by(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """A request waits for its turn inside; raises EndpointError (`busy`) when it is too late for one."""
        scope = asyncio.timeout_at(self._end)
        try:
            async with scope:
                self._scopes.add(scope)
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise EndpointError("busy", self._why) from error
        finally:
            self._scopes.discard(scope)

    def _end_by(self, when: float) -> None:
        self._end = when
        for scope in self._scopes:
            if not scope.expired():
                scope.reschedule(when)


def request_s(deadline_s: float | None, context: Context) -> float:
    """What one request may take, of the option `deadline_s`; raises ConfigError if its whole call may not."""
    if deadline_s is not None and deadline_s > context.timeout_s:
        raise ConfigError(
            f"{context.component}: options.deadline_s = {deadline_s:g} is for one request, and longer than "
            f"reward.timeout_s = {context.timeout_s:g}, which is for all requests of a group: raise reward.timeout_s"
        )
    return deadline_s or context.timeout_s
