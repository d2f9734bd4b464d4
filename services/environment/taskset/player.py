"""Plays one episode of a taskset of `verifiers`, a program that calls the policy at the endpoint."""

import json

from headrace.services.environment.agent.calls import PolicyCalls
from headrace.services.environment.agent.player import BEYOND_S, ProgramPlayer
from headrace.services.environment.child.errors import EnvironmentFailedError
from headrace.services.environment.player.ends import EpisodeEndedError, unless_failed
from headrace.services.environment.player.state import EpisodeState
from headrace.services.environment.taskset.frames import PlayedTrace
from headrace.services.environment.taskset.process import TasksetProcess
from headrace.wire.contracts import EnvironmentReward, FinishReason, PromptGroup, Sampling

_BY_A_LIMIT = ("ProviderError", "HarnessError", "InterceptionError")
"""What a refused call of the policy becomes; an error of the taskset's own code says something else."""
_TURNS = "max_turns"
"""The package's condition for it."""


class TasksetPlayer(ProgramPlayer[TasksetProcess]):
    """Plays episodes of one taskset with one model."""

    async def _run(
        self, child: TasksetProcess, calls: PolicyCalls, prompt: PromptGroup, sampling: Sampling, state: EpisodeState
    ) -> FinishReason:
        assert prompt.environment is not None
        task = json.loads(prompt.environment.task_json)
        async with self._serving(calls, child.key, sampling, child.socket):
            playing = child.play(task, sampling, timeout_s=self._limits.episode_s + BEYOND_S)
            trace = await unless_failed(playing, calls.flights.failed)
        if trace["rewards"] or trace["metrics"]:
            value = sum(trace["rewards"].values()) if trace["scored"] else None
            state.reward = EnvironmentReward(value=value, components=trace["rewards"], metrics=trace["metrics"])
        return _reason(trace, calls)


def _reason(trace: PlayedTrace, calls: PolicyCalls) -> FinishReason:
    """How the agent's run ended. Raises EpisodeEndedError, EnvironmentFailedError."""
    if trace["late"]:
        raise EpisodeEndedError(FinishReason.TIME, f"a deadline of the taskset's own passed: {trace['stopped']}")
    if calls.budget.limit is not None and (not trace["error"] or trace["error"].startswith(_BY_A_LIMIT)):
        return calls.budget.limit
    if trace["error"]:
        raise EnvironmentFailedError(trace["error"], trace["where"])
    if not calls.tree.turns:
        raise EnvironmentFailedError("the agent's run ended without a call of the policy")
    if trace["stopped"] == _TURNS:
        return FinishReason.TURN_LIMIT
    return FinishReason.LENGTH if trace["truncated"] else FinishReason.STOP
