"""Plays one episode of a program: serves it the policy, waits for its end, and takes its reward.

As with other environments, an end that says nothing of the policy makes the rollout abstain; a limit does not. Nothing
that the program does ends more than its episode.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from headrace.services.environment import metrics
from headrace.services.environment.agent.calls import PolicyCalls
from headrace.services.environment.agent.endpoint import endpoint_app
from headrace.services.environment.agent.process import AgentConfig, AgentProcess
from headrace.services.environment.agent.record import record_of
from headrace.services.environment.agent.rewards import reward_of
from headrace.services.environment.child.errors import ChildDiedError, EnvironmentFailedError
from headrace.services.environment.player.ends import end_of, unless_failed
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.state import EpisodeState, rollout_of
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.rendering.conversation import ConversationRenderer
from headrace.wire.contracts import FinishReason, Header, PromptGroup, Rollout, rollout_id
from headrace.wire.http import serve_socket

_BEYOND_S = 60.0
"""By which a call of the sandbox may outlast the episode, whose own deadline comes first and has the better words."""


class AgentPlayer:
    """Plays episodes of one program with one model."""

    def __init__(
        self,
        renderer: ConversationRenderer,
        turns: TurnClient,
        limits: EpisodeLimits,
        agent: AgentConfig,
        begun: Callable[[str, int, Counter[str]], None],
    ) -> None:
        """`begun` is given each episode's name, its turns, and how many of them began a segment, by reason."""
        self._renderer, self._turns, self._limits = renderer, turns, limits
        self._agent, self._begun = agent, begun

    async def play(
        self,
        child: AgentProcess,
        prompt: PromptGroup,
        header: Header,
        index: int,
        *,
        last: bool = True,
        state: EpisodeState | None = None,
    ) -> Rollout:
        """Plays rollout `index` of a group in `child`, a new sandbox; `state` is kept up to date meanwhile.

        Raises ContractError for a turn that no replica can sample; ChildDiedError if the program or its sandbox is
        killed in an episode that is not the `last` attempt.
        """
        state = state or EpisodeState(rollout_id=rollout_id(header.group_id, index))
        state.wait("environment", "the agent's program")
        begin = time.monotonic()
        calls = PolicyCalls(self._renderer, self._turns, self._limits, prompt, header, index, state)
        try:
            playing = self._to_its_end(child, calls, prompt, index, state)
            reason, error = await end_of(playing, child, state, self._limits)
        except ChildDiedError as died:
            if not last:
                raise
            reason, error = FinishReason.ENVIRONMENT_ERROR, str(died)
        finally:
            await calls.flights.close()
        metrics.EPISODE_SECONDS.observe(time.monotonic() - begin)
        metrics.EPISODES.labels(reason.value).inc()
        self._take(calls, state)
        return rollout_of(state, reason, error)

    async def _to_its_end(
        self, child: AgentProcess, calls: PolicyCalls, prompt: PromptGroup, index: int, state: EpisodeState
    ) -> FinishReason:
        assert prompt.environment is not None
        task, key = prompt.environment.task_json, f"sk-{secrets.token_hex(16)}"
        sampling = replace(prompt.sampling, greedy=prompt.sampling.greedy or index >= prompt.trained)
        async with serve_socket(endpoint_app(calls, key, sampling), child.socket):
            running = child.run(task, key, self._limits.episode_s + _BEYOND_S)
            status = await unless_failed(running, calls.flights.failed)
        await calls.flights.close()
        if calls.budget.limit is None and (status or not calls.budget.begun):
            what = f"exited with status {status}" if status else "ended without a call of the policy"
            raise EnvironmentFailedError(f"{self._agent.command[0]} {what}; {child.last_words()}")
        state.wait("environment", "the environment's reward")
        found = await child.run_reward(task, self._limits.tool_s)
        if self._agent.reward_files:
            if found is None:
                names = " or ".join(self._agent.reward_files)
                raise EnvironmentFailedError(f"the episode has no reward: there is no {names}; {child.last_words()}")
            state.reward = reward_of(*found)
        return calls.budget.limit or FinishReason.STOP

    def _take(self, calls: PolicyCalls, state: EpisodeState) -> None:
        """Makes the tree the state's turns, with the conversation for people."""
        trained = calls.tree.trained()
        metrics.DROPPED_TURNS.inc(len(calls.tree.turns) - len(trained))
        state.turns = [one.turn for one in trained]
        state.record = record_of(calls.tree, trained)
        state.text = max(trained, key=lambda one: one.number).text if trained else ""
        self._begun(state.rollout_id, len(calls.tree.turns), Counter(one.begins for one in calls.tree.turns))
