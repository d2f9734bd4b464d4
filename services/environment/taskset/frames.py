"""What a process of a taskset is given, and what it answers: the end of an agent's run, and rows. Pure."""

from dataclasses import dataclass

from typing_extensions import TypedDict

from headrace.services.environment.child.frames import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksetConfig:
    """What is played, and how."""

    taskset: str
    options: Json
    harness: str
    max_turns: int
    context_length: int


class PlayedTrace(TypedDict):
    """An agent's run."""

    rewards: dict[str, float]
    """Each with its weight applied."""
    scored: bool
    """Whether there are rewards, and each has a value: a sum without one of its terms is another reward."""
    metrics: dict[str, float]
    stopped: str
    """The condition that ended it."""
    truncated: bool
    late: bool
    """Whether a deadline of the taskset's own passed."""
    error: str
    """Why it failed; empty = it did not."""
    where: str
    """File and line of it, as far as it is known."""
