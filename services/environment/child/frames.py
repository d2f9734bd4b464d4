"""The protocol between a worker and its child: what each call is answered with."""

from typing_extensions import TypedDict

Json = dict[str, object]
"""A JSON object. Messages have the form of OpenAI's: `role`, `content`, and what else a chat template reads."""


class ToolNote(TypedDict):
    """What is known of one call of a tool."""

    name: str
    seconds: float
    outcome: str
    """`returned`, `raised`, or `refused`: it could not be called."""
    cut: int
    """Characters of the result that the policy does not read."""


class EnvironmentReset(TypedDict):
    """An episode has begun."""

    messages: list[Json]
    tools: list[Json]
    """Schemas in the form of OpenAI's `tools`."""


class EnvironmentStep(TypedDict):
    """The answer to a message of the policy."""

    messages: list[Json]
    done: bool
    reward: float | None
    turn_reward: float | None
    components: dict[str, float]
    metrics: dict[str, float]
    calls: list[ToolNote]
    """One a message, if tools were called."""


class EpisodeReward(TypedDict):
    """The environment's reward of a whole episode."""

    value: float | None
    components: dict[str, float]
    metrics: dict[str, float]
