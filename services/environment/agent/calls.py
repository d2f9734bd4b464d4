"""The policy as an agent's program calls it: contexts found in the tree, turns sampled within the episode's budget.

A turn is sampled once, even if the connection that asked for it is lost: the program may have given up and asked
again, and gets the same turn then.
"""

import time

from headrace.services.environment import metrics
from headrace.services.environment.agent.answers import message_of
from headrace.services.environment.agent.requests import ChatRequest
from headrace.services.environment.agent.tree import EpisodeTree, Place, TreeTurn
from headrace.services.environment.player.budget import BudgetSpentError, TurnBudget
from headrace.services.environment.player.flights import EpisodeOverError, Flights
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.state import EpisodeState
from headrace.services.environment.player.turns import SampledTurn, TurnClient, count_turn, note_of, sample_request
from headrace.services.environment.rendering.conversation import ConversationRenderer
from headrace.wire.api.openai import ChatRefusedError
from headrace.wire.contracts import FinishReason, Header, PromptGroup
from headrace.wire.errors import DataError
from headrace.wire.rendering.chat_template import Seen

_Key = tuple[tuple[str, ...], str]


class PolicyCalls:
    """The calls of one episode. On one event loop only."""

    def __init__(
        self,
        renderer: ConversationRenderer,
        turns: TurnClient,
        limits: EpisodeLimits,
        prompt: PromptGroup,
        header: Header,
        index: int,
        state: EpisodeState,
    ) -> None:
        """Plays rollout `index` of a group; `state` shows meanwhile what the episode waits for."""
        self._renderer, self._turns, self._limits = renderer, turns, limits
        self._prompt, self._header, self._index, self._state = prompt, header, index, state
        self.tree = EpisodeTree()
        self.budget = TurnBudget(limits, prompt.sampling.max_tokens)
        self.flights: Flights[_Key, TreeTurn] = Flights(ChatRefusedError)

    async def answer(self, asked: ChatRequest) -> TreeTurn:
        """The turn that answers a request. Raises ChatRefusedError, and what `flights.failed` then holds."""
        place = self.tree.take(asked.messages, [asked.tools, asked.max_tokens])
        key = (place.path, place.options)
        in_flight, before = key in self.flights, self.tree.repeated(place)
        if in_flight or before is not None:
            metrics.REPEATED_CALLS.inc()
        if before is not None and not in_flight:
            return before
        try:
            return await self.flights.join(key, lambda: self._sampled(place, asked))
        except EpisodeOverError:
            raise ChatRefusedError(500, "the episode is over", "policy_lost") from None

    async def _sampled(self, place: Place, asked: ChatRequest) -> TreeTurn:
        try:
            seen = place.parent.seen if place.parent is not None else None
            context = self._renderer.context(place.rendered(), asked.tools, seen)
        except DataError as error:
            raise ChatRefusedError(400, str(error), param="messages") from error
        try:
            async with self.budget.turn(len(context.token_ids), asked.max_tokens or 0) as (number, most):
                return await self._turn(number, place, context, asked, most)
        except BudgetSpentError as spent:
            raise ChatRefusedError(400, spent.message, spent.code, param="messages") from spent

    async def _turn(self, number: int, place: Place, context: Seen, asked: ChatRequest, most: int) -> TreeTurn:
        """Samples one turn, and takes it into the tree."""
        request = sample_request(
            self._prompt,
            self._header,
            self._index,
            turn=number,
            context_ids=context.token_ids,
            max_tokens=most,
            stop_token_ids=self._renderer.stop_token_ids,
            deadline_s=self._limits.turn_s,
        )
        parent, begin = place.parent, time.monotonic()
        home = str(parent.note["replica"]) if parent is not None else ""
        self._state.wait("engine", f"turn {number} of the policy")
        said = await self._turns.sample(request, seconds=self._limits.episode_s, preferred=home)
        seconds = time.monotonic() - begin
        self.budget.spend(len(said.turn.completion_ids))
        count_turn(said, seconds, parent.turn if parent is not None and said.replica_id == home else None)
        turn = self._tree_turn(number, place, context, asked, said)
        turn.note = {**note_of(said, seconds), **turn.note}
        if begins := self.tree.add(turn):
            metrics.SEGMENTS.labels(begins).inc()
        if len(self.flights) == 1:
            self._state.wait("environment", "the agent's program")
        return turn

    def _tree_turn(self, number: int, place: Place, context: Seen, asked: ChatRequest, said: SampledTurn) -> TreeTurn:
        stopped = said.turn.finish_reason is FinishReason.STOP
        answer = self._renderer.answer(context, said.turn.completion_ids, asked.tools, stopped=stopped)
        message, calls = message_of(answer, number)
        return TreeTurn(
            number=number,
            place=place,
            turn=said.turn,
            seen=answer.seen,
            said=message,
            raw=answer.message,
            text=answer.text,
            note={"tool_calls": calls} if calls else {},
        )
