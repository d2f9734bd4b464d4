"""What is left of an episode's turns and tokens, where turns may be asked for at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.services.environment.player.limits import EpisodeLimits
from headrace.wire.contracts import FinishReason


class BudgetSpentError(Exception):
    """A limit leaves no room for another turn."""

    def __init__(self, reason: FinishReason, message: str, code: str) -> None:
        super().__init__(message)
        self.reason, self.message, self.code = reason, message, code


class TurnBudget:
    """The turns and tokens of one episode. On one event loop only."""

    def __init__(self, limits: EpisodeLimits, max_tokens: int) -> None:
        """`max_tokens`: how many the whole episode may sample."""
        self._limits, self._most = limits, max_tokens
        self.begun = 0
        """Turns that were given a number."""
        self.limit: FinishReason | None = None
        """The limit that refused the last turn, if one did."""
        self._sampled = self._held = 0
        """Tokens that were sampled, and those that turns in flight may yet sample."""
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def turn(self, context: int, asked: int) -> AsyncIterator[tuple[int, int]]:
        """The number of a turn, from 0, and the most tokens that it may sample after a context of so many.

        `asked`: the most that the caller wants; 0 = no bound of its own. What turns in flight may yet sample is not
        given away: where all that is left is theirs, the turn waits. Raises BudgetSpentError.
        """
        async with self._freed:
            room = await self._room(context)
            most = min(room, self._limits.max_turn_tokens or room, asked or room)
            number, self.begun, self._held, self.limit = self.begun, self.begun + 1, self._held + most, None
        try:
            yield number, most
        finally:
            async with self._freed:
                self._held -= most
                self._freed.notify_all()

    def spend(self, tokens: int) -> None:
        """Counts what a turn has sampled, before it ends."""
        self._sampled += tokens

    async def _room(self, context: int) -> int:
        in_context = self._limits.context_length - context
        if in_context < 1:
            raise self._spent(
                FinishReason.LENGTH,
                f"the messages are {context} tokens, the context holds {self._limits.context_length}",
                "context_length_exceeded",
            )
        while True:
            # Asked anew after each wait: others that waited may have begun meanwhile.
            if self.begun >= self._limits.max_turns:
                raise self._spent(
                    FinishReason.TURN_LIMIT,
                    f"environment.max_turns = {self._limits.max_turns} are used up",
                    "turn_limit",
                )
            if (left := self._most - self._sampled - self._held) > 0:
                return min(left, in_context)
            if not self._held:
                raise self._spent(
                    FinishReason.LENGTH,
                    f"rollout.sampling.max_tokens = {self._most} of the episode are used up",
                    "context_length_exceeded",
                )
            await self._freed.wait()

    def _spent(self, reason: FinishReason, message: str, code: str) -> BudgetSpentError:
        self.limit = reason
        return BudgetSpentError(reason, message, code)
