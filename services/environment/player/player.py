"""Plays one episode to an end: its environment's word, a limit, or what says nothing of the policy.

An end of the last kind (an error of the environment, a deadline) makes the rollout abstain; a limit does not. Nothing
that the environment does ends more than its episode.
"""

import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from headrace.services.environment import metrics
from headrace.services.environment.child.errors import ChildDiedError
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.player.ends import end_of
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.state import EpisodeState, rollout_of
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.rendering.conversation import ConversationRenderer
from headrace.wire.contracts import FinishReason, Header, PromptGroup, Rollout, rollout_id

ChildT = TypeVar("ChildT", bound=ChildProcess)


class Player(ABC, Generic[ChildT]):
    """Plays the episodes of one config with one model."""

    def __init__(self, renderer: ConversationRenderer, turns: TurnClient, limits: EpisodeLimits) -> None:
        self._renderer, self._turns, self._limits = renderer, turns, limits

    async def play(
        self,
        child: ChildT,
        prompt: PromptGroup,
        header: Header,
        index: int,
        *,
        last: bool = True,
        state: EpisodeState | None = None,
    ) -> Rollout:
        """Plays rollout `index` of a group in `child`; `state`, a new one, is kept up to date meanwhile.

        Raises ContractError for a turn that no replica can sample; ChildDiedError if the child ends in the middle of an
        episode that is not the `last` attempt.
        """
        state = state or EpisodeState(rollout_id=rollout_id(header.group_id, index))
        state.wait("environment", "the environment to begin")
        begin = time.monotonic()
        try:
            playing = self._to_its_end(child, prompt, header, index, state)
            reason, error = await end_of(playing, child, state, self._limits)
        except ChildDiedError as died:
            if not last:
                raise
            lost = state.waits_kind == "tool"
            reason, error = FinishReason.TOOL_LOST if lost else FinishReason.ENVIRONMENT_ERROR, str(died)
        state.at_end()
        metrics.EPISODE_SECONDS.observe(time.monotonic() - begin)
        metrics.EPISODES.labels(reason.value).inc()
        return rollout_of(state, reason, error)

    @abstractmethod
    async def _to_its_end(
        self, child: ChildT, prompt: PromptGroup, header: Header, index: int, state: EpisodeState
    ) -> FinishReason:
        """Plays to the environment's own end. Raises EpisodeEndedError, EnvironmentFailedError, ChildDiedError."""
