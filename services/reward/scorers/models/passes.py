"""Forward passes over sequences from many callers: joined, sorted by length, one at a time, off the event loop.

A caller's turn comes when a pass with its sequences begins; from then on its deadline counts. No caller waits behind a
pass that hangs: it fails its own callers, and the scorer is down for the others until it has ended.
"""

import asyncio
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.services.reward.scorer import ScorerDownError
from headrace.wire.errors import WaitTimeoutError

TokenIds = NDArray[np.int32]
_WORTH_TOKENS = 2048
_SHORTEST_SHARE = 0.75
RowT = TypeVar("RowT", bound=Sized)
"""A sequence; its length is in tokens."""
ValueT = TypeVar("ValueT")
"""What a pass finds of a sequence."""


@dataclass(slots=True, eq=False)
class _Request(Generic[RowT, ValueT]):
    rows: Sequence[RowT]
    answer: asyncio.Future[list[ValueT]]
    found: dict[int, ValueT] = field(default_factory=dict)

    def take(self, row: int, value: ValueT) -> None:
        self.found[row] = value
        if len(self.found) == len(self.rows) and not self.answer.done():
            self.answer.set_result([self.found[number] for number in range(len(self.rows))])

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Passes(Generic[RowT, ValueT]):
    """Runs the forward passes of one model."""

    def __init__(
        self,
        forward: Callable[[Sequence[RowT]], list[ValueT]],
        *,
        max_tokens: int,
        deadline_s: float,
        what: str,
        joined: bool = True,
    ) -> None:
        """`forward` gives one value a sequence, in order. It is called on a thread, never twice at a time.

        `max_tokens` of one pass, padding included; `deadline_s` bounds a pass; `what` names the model.

        Unless `joined`, a caller's sequences share no pass with others: its numbers are then the same bits whatever
        else is scored.
        """
        self._forward, self._max_tokens, self._deadline_s, self._what = forward, max_tokens, deadline_s, what
        self._joined = joined
        self._waiting: list[_Request[RowT, ValueT]] = []
        self._turn: list[_Request[RowT, ValueT]] = []
        """Requests whose passes are under way."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forward-pass")
        """Always the same one: on a GPU each thread that multiplies has a workspace of cuBLAS."""
        self._worker: asyncio.Task[None] | None = None
        self._stuck: asyncio.Future[list[ValueT]] | None = None

    async def run(self, rows: Sequence[RowT]) -> list[ValueT]:
        """One value a sequence, in order.

        Raises WaitTimeoutError if a pass with one of them takes too long, ScorerDownError if they wait behind such a
        pass, and what the forward pass raises.
        """
        if not rows:
            return []
        self._check_stuck()
        request = _Request(rows, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await request.answer

    async def close(self) -> None:
        """Fails all requests that still wait."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._down("it was closed")
        self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        while self._waiting:
            # Callers that came at the same time are all here only after the loop has turned once.
            await asyncio.sleep(0)
            taken = len(self._waiting) if self._joined else 1
            self._turn, self._waiting = self._waiting[:taken], self._waiting[taken:]
            for part in _parts(self._turn, self._max_tokens):
                await self._pass(part)

    async def _pass(self, part: Sequence[tuple[_Request[RowT, ValueT], int]]) -> None:
        part = [(request, row) for request, row in part if not request.answer.done()]
        if not part:
            return
        rows = [request.rows[row] for request, row in part]
        thread = asyncio.get_running_loop().run_in_executor(self._thread, self._forward, rows)
        done, _ = await asyncio.wait([thread], timeout=self._deadline_s)
        if not done:
            self._hung(thread, part)
            return
        try:
            values = thread.result()
        except Exception as error:  # An error of torch: its callers report it.
            for request, _ in part:
                request.fail(error)
            return
        for value, (request, row) in zip(values, part, strict=True):
            request.take(row, value)

    def _hung(self, thread: "asyncio.Future[list[ValueT]]", part: Sequence[tuple[_Request[RowT, ValueT], int]]) -> None:
        self._stuck = thread
        # Its result is dropped; an error of it must not be reported as never retrieved.
        thread.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        for request, _ in part:
            request.fail(WaitTimeoutError(f"a forward pass of {self._what}", self._deadline_s))
        self._down(f"a forward pass has taken more than {self._deadline_s:g} s")

    def _down(self, why: str) -> None:
        for request in (*self._turn, *self._waiting):
            request.fail(ScorerDownError(f"{self._what}: {why}"))
        self._turn, self._waiting = [], []

    def _check_stuck(self) -> None:
        if self._stuck is not None and not self._stuck.done():
            raise ScorerDownError(f"{self._what}: a forward pass has hung for more than {self._deadline_s:g} s")
        self._stuck = None


def _parts(
    requests: Sequence[_Request[RowT, ValueT]], max_tokens: int
) -> list[list[tuple[_Request[RowT, ValueT], int]]]:
    """The rows of each pass: longest first, rows times the longest within `max_tokens` (a longer one is alone).

    A pass that is worth its fixed cost takes no row much shorter than its longest: that would be work on padding.
    """
    rows = [(request, row) for request in requests for row in range(len(request.rows))]
    rows.sort(key=lambda one: -len(one[0].rows[one[1]]))
    parts: list[list[tuple[_Request[RowT, ValueT], int]]] = []
    longest = 0
    for request, row in rows:
        length, taken = len(request.rows[row]), len(parts[-1]) * longest if parts else 0
        is_full = taken + longest > max_tokens
        if not parts or is_full or (taken >= _WORTH_TOKENS and length < _SHORTEST_SHARE * longest):
            parts.append([])
            longest = length
        parts[-1].append((request, row))
    return parts
