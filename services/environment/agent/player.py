"""Plays one episode of a program at the endpoint: serves it the policy, waits for its end, and takes its reward."""

import secrets
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from headrace.services.environment import metrics
from headrace.services.environment.agent.calls import PolicyCalls
from headrace.services.environment.agent.endpoint import endpoint_app
from headrace.services.environment.agent.process import AgentProcess
from headrace.services.environment.agent.record import record_of
from headrace.services.environment.agent.rewards import reward_of
from headrace.services.environment.child.errors import EnvironmentFailedError
from headrace.services.environment.player.ends import unless_failed
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.player import ChildT, Player
from headrace.services.environment.player.state import EpisodeState
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.rendering.conversation import ConversationRenderer
from headrace.wire.contracts import FinishReason, Header, PromptGroup, Sampling
from headrace.wire.http import serve_socket

BEYOND_S = 60.0
"""A call of the sandbox may outlast the episode by so much: the episode's own deadline comes first and says more."""


class ProgramPlayer(Player[ChildT]):
    """Plays episodes of programs that call the policy at an endpoint, with one model."""

    def __init__(
        self,
        renderer: ConversationRenderer,
        turns: TurnClient,
        limits: EpisodeLimits,
        begun: Callable[[str, int, Counter[str]], None],
    ) -> None:
        """`begun` is given each episode's name, its turns, and how many of them began a segment, by reason."""
        super().__init__(renderer, turns, limits)
        self._begun = begun

    async def _to_its_end(
        self, child: ChildT, prompt: PromptGroup, header: Header, index: int, state: EpisodeState
    ) -> FinishReason:
        state.wait("environment", "the program")
        calls = PolicyCalls(self._renderer, self._turns, self._limits, prompt, header, index, state)
        state.at_end = lambda: self._take(calls, state)
        sampling = replace(prompt.sampling, greedy=prompt.sampling.greedy or index >= prompt.trained)
        try:
            return await self._run(child, calls, prompt, sampling, state)
        except EnvironmentFailedError:
            await child.kill()  # It may have broken what it shares with further episodes.
            raise
        finally:
            await calls.flights.close()

    @abstractmethod
    async def _run(
        self, child: ChildT, calls: PolicyCalls, prompt: PromptGroup, sampling: Sampling, state: EpisodeState
    ) -> FinishReason:
        """Plays to the program's own end, as `_to_its_end` does."""

    @asynccontextmanager
    async def _serving(self, calls: PolicyCalls, key: str, sampling: Sampling, socket: Path) -> AsyncIterator[None]:
        """Serves the policy on a unix socket; afterwards no turn is sampled any more."""
        socket.unlink(missing_ok=True)
        async with serve_socket(endpoint_app(calls, key, sampling), socket):
            yield
        await calls.flights.close()

    def _take(self, calls: PolicyCalls, state: EpisodeState) -> None:
        """Makes the tree the state's turns, with the conversation for people."""
        trained = calls.tree.trained()
        metrics.DROPPED_TURNS.inc(len(calls.tree.turns) - len(trained))
        state.turns = [one.turn for one in trained]
        state.record = record_of(calls.tree, trained)
        state.text = max(trained, key=lambda one: one.number).text if trained else ""
        self._begun(state.rollout_id, len(calls.tree.turns), Counter(one.begins for one in calls.tree.turns))


class AgentPlayer(ProgramPlayer[AgentProcess]):
    """Plays episodes of the user's own program, each in a new sandbox."""

    async def _run(
        self, child: AgentProcess, calls: PolicyCalls, prompt: PromptGroup, sampling: Sampling, state: EpisodeState
    ) -> FinishReason:
        assert prompt.environment is not None
        task, key, agent = prompt.environment.task_json, f"sk-{secrets.token_hex(16)}", child.agent
        async with self._serving(calls, key, sampling, child.socket):
            status = await unless_failed(child.run(task, key, self._limits.episode_s + BEYOND_S), calls.flights.failed)
        if calls.budget.limit is None and (status or not calls.budget.begun):
            what = f"exited with status {status}" if status else "ended without a call of the policy"
            raise EnvironmentFailedError(f"{agent.command[0]} {what}; {child.last_words()}")
        state.wait("environment", "the environment's reward")
        found = await child.run_reward(task, self._limits.tool_s)
        if agent.reward_files:
            if found is None:
                names = " or ".join(agent.reward_files)
                raise EnvironmentFailedError(f"the episode has no reward: there is no {names}; {child.last_words()}")
            state.reward = reward_of(*found)
        return calls.budget.limit or FinishReason.STOP
