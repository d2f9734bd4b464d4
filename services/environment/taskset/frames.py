"""What a process of a taskset answers: an agent's run, node by node, and rows. Pure."""

from typing_extensions import TypedDict

from headrace.services.environment.child.frames import Json


class PlayedNode(TypedDict):
    """One message of the run's graph."""

    parent: int | None
    ids: list[int]
    """Tokens that it adds to those of its ancestors."""
    sampled: int
    """How many of them, at their end, the policy sampled; 0 for what it did not say."""
    message: Json
    """For people: role, content, and calls of tools (`name`, `arguments`)."""


class PlayedBranch(TypedDict):
    """A path from a root to a leaf."""

    nodes: list[int]
    trainable: bool


class PlayedTrace(TypedDict):
    """An agent's run."""

    nodes: list[PlayedNode]
    branches: list[PlayedBranch]
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
