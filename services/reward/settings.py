"""What the reward service may be told."""

from pathlib import Path
from typing import Any

from pydantic import Field

from wire.settings import ServiceSettings, Table


class ScorerTable(Table):
    """One `[[reward.scorers]]`: a scorer, its weight in the sum, and its options."""

    name: str
    """A built-in (`exact_match`, `numeric`, `format`, `length`, `reward_model`) or the user's own `module:function`."""
    label: str = ""
    """Names its component of the score; empty = `name`. Two scorers of one name need two labels."""
    weight: float = 1.0
    """The score is the weighted sum of all scorers."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the scorer, e.g. `pattern` of `format`."""

    @property
    def component(self) -> str:
        """What its part of the score is called."""
        return self.label or self.name


class RewardTable(Table):
    """`[reward]`: how a rollout is scored."""

    scorers: tuple[ScorerTable, ...] = (ScorerTable(name="exact_match"),)
    """At least one."""
    path: Path | None = None
    """Folder of the user's own modules; it comes last on the import path."""
    concurrency: int = Field(8, ge=1)
    """Groups scored at a time."""
    timeout_s: float = Field(60.0, gt=0)
    """A group whose scorers take longer has failed. A reward model's own time counts from the group's turn on."""


class RewardSettings(ServiceSettings):
    """All the reward service may be told. Built once in `__main__`, passed down, never looked up."""

    reward: RewardTable = RewardTable()
