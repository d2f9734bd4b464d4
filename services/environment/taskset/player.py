"""Plays one episode of a taskset: serves it the policy, waits for its trace, and takes what was sampled out of it.

As with other environments, an end that says nothing of the policy makes the rollout abstain; a limit does not.
"""

import json
import time

from headrace.services.environment import metrics
from headrace.services.environment.child.errors import ChildDiedError, EnvironmentFailedError
from headrace.services.environment.player.ends import EpisodeEndedError, end_of, unless_failed
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.state import EpisodeState, rollout_of
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.rendering.conversation import ConversationRenderer
from headrace.services.environment.taskset.calls import EngineCall, EngineCalls
from headrace.services.environment.taskset.frames import PlayedTrace
from headrace.services.environment.taskset.process import TasksetProcess
from headrace.services.environment.taskset.route import generate_app
from headrace.services.environment.taskset.trained import calls_of, record_of, trained_calls
from headrace.wire.contracts import EnvironmentReward, FinishReason, Header, PromptGroup, Rollout, rollout_id
from headrace.wire.http import serve_socket
from headrace.wire.rendering.chat_template import Seen

_BEYOND_S = 60.0
"""By which a call of the process may outlast the episode, whose own deadline comes first and has the better words."""
_BY_A_LIMIT = ("ProviderError", "HarnessError", "InterceptionError")
"""What a refused call of the policy becomes; an error of the taskset's own code says something else."""
_TURNS = "max_turns"
"""The package's condition for it."""


class TasksetPlayer:
    """Plays episodes of one taskset with one model."""

    def __init__(self, renderer: ConversationRenderer, turns: TurnClient, limits: EpisodeLimits) -> None:
        self._renderer, self._turns, self._limits = renderer, turns, limits

    async def play(
        self,
        child: TasksetProcess,
        prompt: PromptGroup,
        header: Header,
        index: int,
        *,
        last: bool = True,
        state: EpisodeState | None = None,
    ) -> Rollout:
        """Plays rollout `index` of a group in `child`; `state` is kept up to date meanwhile.

        Raises ContractError for a turn that no replica can sample; ChildDiedError if the process ends in an episode
        that is not the `last` attempt.
        """
        state = state or EpisodeState(rollout_id=rollout_id(header.group_id, index))
        state.wait("environment", "the taskset")
        begin = time.monotonic()
        calls = EngineCalls(self._turns, self._limits, prompt, header, index, state)
        try:
            reason, error = await end_of(self._to_its_end(child, calls, prompt, state), child, state, self._limits)
        except ChildDiedError as died:
            if not last:
                raise
            reason, error = FinishReason.ENVIRONMENT_ERROR, str(died)
        finally:
            await calls.flights.close()
        if child.once or reason is FinishReason.ENVIRONMENT_ERROR:
            # What the policy has run may go on in its sandbox; of servers that the episodes share one may be gone.
            await child.kill()
        if not state.turns and calls.calls and error:
            self._show(calls, state)
        metrics.EPISODE_SECONDS.observe(time.monotonic() - begin)
        metrics.EPISODES.labels(reason.value).inc()
        return rollout_of(state, reason, error)

    async def _to_its_end(
        self, child: TasksetProcess, calls: EngineCalls, prompt: PromptGroup, state: EpisodeState
    ) -> FinishReason:
        assert prompt.environment is not None
        task = json.loads(prompt.environment.task_json)
        child.socket.unlink(missing_ok=True)
        async with serve_socket(generate_app(calls, child.key), child.socket):
            playing = child.play(task, prompt.sampling, timeout_s=self._limits.episode_s + _BEYOND_S)
            trace = await unless_failed(playing, calls.flights.failed)
        await calls.flights.close()
        self._take(trace, calls, state)
        return _reason(trace, calls)

    def _take(self, trace: PlayedTrace, calls: EngineCalls, state: EpisodeState) -> None:
        """Makes the trace the state's turns, with the conversation for people. Raises EnvironmentFailedError."""
        found = calls_of(trace, calls.calls)
        trained = trained_calls(trace, found)
        metrics.DROPPED_TURNS.inc(len(calls.calls) - len(trained))
        texts = {one.number: self._text(one) for one in found.values()}
        state.turns = [one.turn for one in trained]
        state.record = record_of(trace, found, trained, texts)
        state.text = texts[max(trained, key=lambda one: one.number).number] if trained else ""
        if trace["rewards"] or trace["metrics"]:
            value = sum(trace["rewards"].values()) if trace["scored"] else None
            state.reward = EnvironmentReward(value=value, components=trace["rewards"], metrics=trace["metrics"])

    def _show(self, calls: EngineCalls, state: EpisodeState) -> None:
        """Shows what was sampled in an episode that abstains and has no trace; none of it is trained."""
        state.turns = [one.turn for one in calls.calls]
        state.record = [
            {"turn": place, **one.note, "role": "assistant", "content": self._text(one)}
            for place, one in enumerate(calls.calls)
        ]

    def _text(self, call: EngineCall) -> str:
        stopped = call.turn.finish_reason is FinishReason.STOP
        seen = Seen(call.turn.context_ids)
        return self._renderer.answer(seen, call.turn.completion_ids, (), stopped=stopped).text


def _reason(trace: PlayedTrace, calls: EngineCalls) -> FinishReason:
    """How the agent's run ended. Raises EpisodeEndedError, EnvironmentFailedError."""
    if trace["late"]:
        raise EpisodeEndedError(FinishReason.TIME, f"a deadline of the taskset's own passed: {trace['stopped']}")
    if calls.budget.limit is not None and (not trace["error"] or trace["error"].startswith(_BY_A_LIMIT)):
        return calls.budget.limit
    if trace["error"]:
        raise EnvironmentFailedError(trace["error"], trace["where"])
    if not calls.calls:
        raise EnvironmentFailedError("the agent's run ended without a call of the policy")
    if trace["stopped"] == _TURNS:
        return FinishReason.TURN_LIMIT
    return FinishReason.LENGTH if trace["truncated"] else FinishReason.STOP
