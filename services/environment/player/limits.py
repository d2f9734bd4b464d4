"""What bounds an episode."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """What bounds an episode beside the tokens that the group's sampling allows it. Times are seconds."""

    max_turns: int
    max_turn_tokens: int
    """0 = as many as are left of the episode's."""
    context_length: int
    episode_s: float
    turn_s: float
    tool_s: float
    """For each call of the environment: its reset, one step with its tools, its reward."""
