"""The policy as an agent's program calls it: contexts found in the tree, turns sampled within the episode's budget.

A turn is sampled once, whatever becomes of the connection that asked for it: the program may have given up and asked
again, and gets the same turn then.
"""

import asyncio
import time

from headrace.services.environment import metrics
from headrace.services.environment.agent.answers import message_of
from headrace.services.environment.agent.requests import CallRefusedError, ChatRequest
from headrace.services.environment.agent.tree import EpisodeTree, Place, TreeTurn
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.state import EpisodeState
from headrace.services.environment.player.turns import SampledTurn, TurnClient, count_turn, note_of, sample_request
from headrace.services.environment.rendering.chat_template import Seen
from headrace.services.environment.rendering.conversation import ConversationRenderer
from headrace.wire.contracts import FinishReason, Header, PromptGroup
from headrace.wire.errors import DataError

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
        self.begun = 0
        """Calls that were given a number."""
        self.limit: FinishReason | None = None
        """The limit that refused the last call, if one did."""
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """What no answer to the program can say: it ends the episode."""
        self._in_flight: dict[_Key, asyncio.Task[TreeTurn]] = {}
        self._held = 0
        """Tokens that turns in flight may yet sample."""
        self._freed = asyncio.Condition()

    async def answer(self, asked: ChatRequest) -> TreeTurn:
        """The turn that answers a request. Raises CallRefusedError, and what `failed` then holds."""
        place = self.tree.take(asked.messages, [asked.tools, asked.max_tokens])
        key = (place.path, place.options)
        running, before = self._in_flight.get(key), self.tree.repeated(place)
        if before is not None and running is None:
            metrics.REPEATED_CALLS.inc()
            return before
        if running is None:
            running = asyncio.create_task(self._sampled(place, asked), name="sample a turn of an agent")
            self._in_flight[key] = running
            running.add_done_callback(lambda done: self._end(key, done))
        else:
            metrics.REPEATED_CALLS.inc()
        # A program that hangs up ends its connection, not the turn.
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if running.cancelled():
                raise CallRefusedError("the episode is over", code="policy_lost", status=500) from None
            raise

    async def close(self) -> None:
        """Gives up what is being sampled."""
        running = list(self._in_flight.values())
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _end(self, key: _Key, done: asyncio.Task[TreeTurn]) -> None:
        del self._in_flight[key]
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception) and not isinstance(error, CallRefusedError) and not self.failed.done():
            self.failed.set_result(error)

    async def _sampled(self, place: Place, asked: ChatRequest) -> TreeTurn:
        try:
            seen = place.parent.seen if place.parent is not None else None
            context = self._renderer.context(place.rendered(), asked.tools, seen)
        except DataError as error:
            raise CallRefusedError(str(error), "messages") from error
        async with self._freed:
            room = await self._room(len(context.token_ids))
            most = min(room, self._limits.max_turn_tokens or room, asked.max_tokens or room)
            number, self.begun, self._held, self.limit = self.begun, self.begun + 1, self._held + most, None
        try:
            return await self._turn(number, place, context, asked, most)
        finally:
            async with self._freed:
                self._held -= most
                self._freed.notify_all()

    async def _room(self, context: int) -> int:
        """Most tokens of the next turn, behind a context of so many. Raises CallRefusedError at a limit.

        What turns in flight may yet sample is not given away: where all that is left is theirs, the call waits.
        """
        if self.begun >= self._limits.max_turns:
            raise self._refused(
                FinishReason.TURN_LIMIT, f"environment.max_turns = {self._limits.max_turns} are used up", "turn_limit"
            )
        in_context = self._limits.context_length - context
        if in_context < 1:
            raise self._refused(
                FinishReason.LENGTH,
                f"the messages are {context} tokens, the context holds {self._limits.context_length}",
                "context_length_exceeded",
            )
        most = self._prompt.sampling.max_tokens
        while (left := most - self._sampled_tokens() - self._held) < 1:
            if not self._held:
                raise self._refused(
                    FinishReason.LENGTH,
                    f"rollout.sampling.max_tokens = {most} of the episode are used up",
                    "context_length_exceeded",
                )
            await self._freed.wait()
        return min(left, in_context)

    def _refused(self, reason: FinishReason, message: str, code: str) -> CallRefusedError:
        self.limit = reason
        return CallRefusedError(message, "messages", code=code)

    def _sampled_tokens(self) -> int:
        return sum(len(one.turn.completion_ids) for one in self.tree.turns)

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
        count_turn(said, seconds, parent.turn if parent is not None and said.replica_id == home else None)
        turn = self._told(number, place, context, asked, said)
        turn.note = {**note_of(said, seconds), **turn.note}
        if begins := self.tree.add(turn):
            metrics.SEGMENTS.labels(begins).inc()
        if len(self._in_flight) == 1:
            self._state.wait("environment", "the agent's program")
        return turn

    def _told(self, number: int, place: Place, context: Seen, asked: ChatRequest, said: SampledTurn) -> TreeTurn:
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
