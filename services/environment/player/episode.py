"""Plays one episode: what the policy says goes to the environment, what comes back goes to the policy, until an end."""

import asyncio
import json
import math
import time

import numpy as np

from headrace.services.environment import metrics
from headrace.services.environment.child.errors import (
    ChildDiedError,
    ChildLateError,
    EnvironmentFailedError,
    ToolServerLostError,
)
from headrace.services.environment.child.frames import EnvironmentStep, Json
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.player.ends import EpisodeEndedError
from headrace.services.environment.player.player import Player
from headrace.services.environment.player.state import EpisodeState
from headrace.services.environment.player.turns import (
    SampledTurn,
    count_turn,
    note_of,
    sample_request,
)
from headrace.services.environment.rendering.tool_calls import SaidCalls
from headrace.wire import tracing
from headrace.wire.contracts import (
    EnvironmentReward,
    FinishReason,
    Header,
    PromptGroup,
)
from headrace.wire.errors import DataError
from headrace.wire.rendering.chat_template import Seen
from headrace.wire.v1 import rollout_pb2 as pb


class EpisodePlayer(Player[ChildProcess]):
    """Plays episodes of one environment with one model."""

    async def _to_its_end(
        self, child: ChildProcess, prompt: PromptGroup, header: Header, index: int, state: EpisodeState
    ) -> FinishReason:
        await self._reset(child, prompt, header, state)
        reason = FinishReason.TURN_LIMIT
        for number in range(self._limits.max_turns):
            asked = self._request(prompt, header, index, number, state)
            if asked is None:
                reason = FinishReason.LENGTH
                break
            said = await self._turn(asked, state)
            if said.turn.finish_reason is FinishReason.LENGTH:
                state.turn_rewards.append(math.nan)
                reason = FinishReason.LENGTH
                break
            if await self._step(child, state):
                reason = FinishReason.STOP
                break
        await self._rewarded(child, state)
        return reason

    async def _reset(self, child: ChildProcess, prompt: PromptGroup, header: Header, state: EpisodeState) -> None:
        assert prompt.environment is not None
        task = json.loads(prompt.environment.task_json)
        begun = await child.reset(task, state.rollout_id, header.attempt, timeout_s=self._limits.tool_s)
        state.tools = begun["tools"]
        state.hear(begun["messages"])

    def _request(
        self, prompt: PromptGroup, header: Header, index: int, number: int, state: EpisodeState
    ) -> pb.SampleRequest | None:
        """The next call of the engine; None if there is no room for another token."""
        try:
            context = self._renderer.context(state.messages, state.tools, state.seen)
        except DataError as error:
            raise EpisodeEndedError(FinishReason.ENVIRONMENT_ERROR, str(error)) from error
        if not _continues(state.seen, context):
            metrics.SEGMENTS.labels("first" if state.seen is None else "template").inc()
        state.seen = context
        room = min(prompt.sampling.max_tokens - state.sampled, self._limits.context_length - len(context.token_ids))
        if room < 1:
            return None
        return sample_request(
            prompt,
            header,
            index,
            turn=number,
            context_ids=context.token_ids,
            max_tokens=min(room, self._limits.max_turn_tokens or room),
            stop_token_ids=self._renderer.stop_token_ids,
            deadline_s=self._limits.turn_s,
        )

    async def _turn(self, request: pb.SampleRequest, state: EpisodeState) -> SampledTurn:
        state.wait("engine", f"turn {request.turn} of the policy")
        begin = time.monotonic()
        said = await self._turns.sample(request, seconds=self._limits.episode_s, preferred=state.replica_id)
        seconds = time.monotonic() - begin
        assert state.seen is not None
        same = bool(state.turns) and said.replica_id == state.replica_id
        count_turn(said, seconds, state.turns[-1] if same else None)
        stopped = said.turn.finish_reason is FinishReason.STOP
        state.turns.append(said.turn)
        answer = self._renderer.answer(state.seen, said.turn.completion_ids, state.tools, stopped=stopped)
        state.replica_id = said.replica_id
        state.say(answer, {"turn": request.turn, **note_of(said, seconds)})
        return said

    async def _step(self, child: ChildProcess, state: EpisodeState) -> bool:
        """Gives the policy's message to the environment; returns whether the episode is over."""
        said = state.said
        metrics.TOOL_CALLS.labels("unknown", "malformed").inc(len(said.malformed))
        if said.malformed and not said.calls:
            state.turn_rewards.append(math.nan)
            _refuse(state, said)
            return False
        answer = await self._called(child, state, said) if said.calls else await self._stepped(child, state, said)
        state.turn_rewards.append(math.nan if answer["turn_reward"] is None else answer["turn_reward"])
        state.hear(answer["messages"], answer["calls"] if len(answer["calls"]) == len(answer["messages"]) else ())
        _refuse(state, said)
        if answer["reward"] is not None or answer["components"] or answer["metrics"]:
            state.reward = EnvironmentReward(
                value=answer["reward"], components=answer["components"], metrics=answer["metrics"]
            )
        return bool(answer["done"])

    async def _called(self, child: ChildProcess, state: EpisodeState, said: SaidCalls) -> EnvironmentStep:
        """Calls tools. A process that ends or is killed meanwhile is a tool lost: the environment had no say."""
        # Results of the calls are recorded after them; calls without a result stay visible as such.
        state.record[-1]["tool_calls"] = list(said.calls)
        state.wait("tool", f"the tools {', '.join(str(call['name']) for call in said.calls)}")
        try:
            with tracing.span("tools", names=[state.tool_label(call["name"]) for call in said.calls]):
                answer = await self._stepped(child, state, said)
        except (EnvironmentFailedError, ChildLateError, asyncio.CancelledError) as error:
            outcomes = {ChildDiedError: "lost", ToolServerLostError: "lost", ChildLateError: "late"}
            outcome = outcomes.get(type(error), "broken_off")
            for call in said.calls:
                metrics.TOOL_CALLS.labels(state.tool_label(call["name"]), outcome).inc()
            raise
        for note in answer["calls"]:
            metrics.TOOL_CALLS.labels(note["name"], note["outcome"]).inc()
            metrics.TOOL_SECONDS.labels(note["name"]).observe(note["seconds"])
        return answer

    async def _stepped(self, child: ChildProcess, state: EpisodeState, said: SaidCalls) -> EnvironmentStep:
        if not said.calls:
            state.wait("environment", "the environment's step")
        message: Json = {**state.messages[-1], "tool_calls": list(said.calls)}
        begin = time.monotonic()
        answer = await child.step(message, timeout_s=self._limits.tool_s)
        metrics.TURN_SECONDS.labels("environment").observe(time.monotonic() - begin)
        return answer

    async def _rewarded(self, child: ChildProcess, state: EpisodeState) -> None:
        """Asks the environment for its reward of the whole, which replaces the reward of its last step."""
        state.wait("environment", "the environment's reward")
        answer = await child.reward(state.with_calls(), timeout_s=self._limits.tool_s)
        if answer["value"] is not None or answer["components"] or answer["metrics"]:
            before = state.reward or EnvironmentReward()
            state.reward = EnvironmentReward(
                value=before.value if answer["value"] is None else answer["value"],
                components={**before.components, **answer["components"]},
                metrics={**before.metrics, **answer["metrics"]},
            )


def _refuse(state: EpisodeState, said: SaidCalls) -> None:
    """Answers the calls of the policy that cannot be read."""
    messages: list[Json] = [{"role": "tool", "name": "", "content": text} for text in said.malformed]
    state.hear(messages, [{"outcome": "malformed"}] * len(messages))


def _continues(seen: Seen | None, context: Seen) -> bool:
    return seen is not None and np.array_equal(context.token_ids[: len(seen.token_ids)], seen.token_ids)
