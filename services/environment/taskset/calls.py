"""The policy as the train client of `verifiers` calls it: token ids in, token ids out, each call with its record."""

import itertools
import time
from dataclasses import dataclass, field

from headrace.services.environment.child.frames import Json
from headrace.services.environment.player.budget import BudgetSpentError, TurnBudget
from headrace.services.environment.player.flights import Flights
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.state import EpisodeState
from headrace.services.environment.player.turns import TurnClient, count_turn, note_of, sample_request
from headrace.wire.contracts import Header, PromptGroup, Turn
from headrace.wire.contracts.messages import TokenIds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenRequest:
    """What the client asks for."""

    session: str
    """The run of one agent: contexts of another one are never continued."""
    context_ids: TokenIds
    """int32 [context]"""
    max_tokens: int
    """0 = as many as there is room for."""
    stop_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineCall:
    """One call that was answered."""

    number: int
    """Its number in the episode, from 0."""
    asked: TokenRequest
    turn: Turn
    replica_id: str
    note: Json = field(default_factory=dict)
    """What is known of it, for people."""


class EngineCalls:
    """The calls of one episode. On one event loop only."""

    def __init__(
        self,
        turns: TurnClient,
        limits: EpisodeLimits,
        prompt: PromptGroup,
        header: Header,
        index: int,
        state: EpisodeState,
    ) -> None:
        """Plays rollout `index` of a group; `state` shows meanwhile what the episode waits for."""
        self._turns, self._limits, self._state = turns, limits, state
        self._prompt, self._header, self._index = prompt, header, index
        self.context_length = limits.context_length
        self.budget = TurnBudget(limits, prompt.sampling.max_tokens)
        self.flights: Flights[int, EngineCall] = Flights(BudgetSpentError)
        self._asked = itertools.count()
        self.calls: list[EngineCall] = []
        """In the order of their answers."""

    async def answer(self, asked: TokenRequest) -> EngineCall:
        """The call that answers a request: a new one for each, for it is `verifiers` that knows retries of a client.

        Raises BudgetSpentError at a limit, EpisodeOverError, and what `flights.failed` then holds.
        """
        return await self.flights.join(next(self._asked), lambda: self._sampled(asked))

    async def _sampled(self, asked: TokenRequest) -> EngineCall:
        async with self.budget.turn(len(asked.context_ids), asked.max_tokens) as (number, most):
            request = sample_request(
                self._prompt,
                self._header,
                self._index,
                turn=number,
                context_ids=asked.context_ids,
                max_tokens=most,
                stop_token_ids=asked.stop_token_ids,
                deadline_s=self._limits.turn_s,
            )
            before = next((one for one in reversed(self.calls) if one.asked.session == asked.session), None)
            home = before.replica_id if before is not None else ""
            self._state.wait("engine", f"turn {number} of the policy")
            begin = time.monotonic()
            said = await self._turns.sample(request, seconds=self._limits.episode_s, preferred=home)
            seconds = time.monotonic() - begin
            self.budget.spend(len(said.turn.completion_ids))
            count_turn(said, seconds, before.turn if before is not None and said.replica_id == home else None)
            note = note_of(said, seconds)
            found = EngineCall(number=number, asked=asked, turn=said.turn, replica_id=said.replica_id, note=note)
            self.calls.append(found)
            if len(self.flights) == 1:
                self._state.wait("environment", "the taskset")
            return found
