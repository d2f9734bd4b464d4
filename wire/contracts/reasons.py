"""Why groups, rollouts and messages are there, and how they end: closed sets."""

from enum import StrEnum
from typing import Literal

StalePolicy = Literal["wait", "late", "mask", "drop"]
"""Policies for rollouts that lag behind the weights, which `wire.config.settings.RunTable.stale` describes."""


class Purpose(StrEnum):
    """What a group is for: training groups use credit and the journal, evaluation groups neither."""

    TRAIN = "train"
    EVAL = "eval"


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    LENGTH = "length"
    TURN_LIMIT = "turn_limit"
    """The episode had as many turns as it may have; like `length` it is scored as it stands."""
    TIME = "time"
    """The episode's deadline passed."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment raised an error, or its process died outside of a tool."""
    TOOL_LOST = "tool_lost"
    """A tool's process was lost in a call. An error that a tool returns is text for the model, and ends nothing."""

    @property
    def is_limit(self) -> bool:
        """Whether a limit of tokens or turns cut the rollout off."""
        return self in (FinishReason.LENGTH, FinishReason.TURN_LIMIT)

    @property
    def abstains(self) -> bool:
        """Whether a rollout that ended so has no score: its end says nothing about the policy."""
        return self in (FinishReason.TIME, FinishReason.ENVIRONMENT_ERROR, FinishReason.TOOL_LOST)


class DropReason(StrEnum):
    """Why a group was never trained; also the closed label set of the drop counters."""

    STALE = "stale"
    UNINFORMATIVE = "uninformative"
    """Dynamic sampling (DAPO): all its trained rollouts have one score, so no advantage differs from 0."""
    POISON = "poison"
    SCORER_FAILED = "scorer_failed"
    ABSTAINED = "abstained"
    """Fewer than two of its trained rollouts (or not its baseline) could be scored."""
    ROLLOUT_FAILED = "rollout_failed"
    CRASH_LOOP = "crash_loop"
    UNVERIFIED_WEIGHTS = "unverified_weights"
    RUN_ENDED = "run_ended"
