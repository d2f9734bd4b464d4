"""Settings of the reward service."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headrace.services.reward.rubric.reasoning import TAGS
from headrace.services.reward.scorer import Place
from headrace.wire.config.settings import ServiceSettings, Table

Combination = Literal["weighted_sum", "mean", "product", "min", "median", "gate"]


class CombinationTable(Table):
    """How several scorers make one score."""

    combination: Combination = "weighted_sum"
    """`weighted_sum`; `mean` (weighted) and `median` over those of an ensemble that scored; `product`; `min` (the worst
    case); `gate`: scorers with `at_least` open the gate, the weighted sum of the others is the score."""
    gate_value: float = 0.0
    """For `gate`: the score if a gate stays closed."""
    quorum: float = Field(0.5, ge=0, lt=1)
    """For `mean` and `median`: the rubric abstains unless more than this share of the members has scored."""


_PLAIN = ("weighted_sum", 0.0, 0.5)


class ScorerTable(CombinationTable):
    """One `[[reward.scorers]]`: a scorer, its weight, and its options."""

    name: str
    """A built-in scorer (`headrace score --list` names them), `ensemble` for its `members` combined, or the user's own
    `module:function`, `trl:module:function`, `verl:module:function` or `verifiers:module`."""
    label: str = ""
    """Name of its component of the score; empty = `name`. Two scorers with the same name need different labels."""
    weight: float = 1.0
    """Weight of the component in a weighted sum or mean."""
    range: tuple[float, float] | None = None
    """Values outside are refused; none = the range that the scorer declares."""
    at_least: float | None = None
    """For `gate`: smallest value that opens the gate."""
    optional: bool = False
    """If it abstains, the others alone make the score; otherwise the whole score abstains."""
    text: Literal["answer", "all"] | None = None
    """What it sees of a completion: the `answer` after the thoughts, or `all`, with the tag by which the prompt opened
    them; none = what suits it: the answer for `math`, `numeric`, `boxed`, `exact_match`, `code`, `json_schema` and
    judges, all for `format`, and for the others what was sampled."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of the scorer itself, e.g. `pattern` of `format`."""
    members: tuple["ScorerTable", ...] = ()
    """For `ensemble`: the scorers that are combined by its `combination`."""

    @property
    def component(self) -> str:
        """What its part of the score is called."""
        return self.label or self.name

    @model_validator(mode="after")
    def _is_whole(self) -> "ScorerTable":
        if (self.name == "ensemble") != bool(self.members):
            raise ValueError("name = 'ensemble' and `members` go together: give [[reward.scorers.members]]")
        if self.name != "ensemble" and (self.combination, self.gate_value, self.quorum) != _PLAIN:
            raise ValueError(f"combination, gate_value and quorum are an ensemble's, not those of {self.name!r}")
        if self.name == "ensemble" and (self.range is not None or self.options or self.text):
            raise ValueError("an ensemble has neither range nor options nor text of its own: give them to its members")
        if self.range is not None and not self.range[0] <= self.range[1]:
            raise ValueError(f"range = {list(self.range)}: the lowest value comes first")
        return self


class TaskTable(CombinationTable):
    """`[reward.tasks.NAME]`: the rubric of the rows of one task."""

    scorers: tuple[ScorerTable, ...] = Field(min_length=1)
    """At least one."""


class RewardTable(CombinationTable):
    """`[reward]`: how a rollout is scored."""

    scorers: tuple[ScorerTable, ...] = (ScorerTable(name="exact_match"),)
    """The rubric of all rows whose task has none of its own. At least one."""
    tasks: dict[str, TaskTable] = Field(default_factory=dict)
    """Rubrics by task name."""
    task_column: str = "data_source"
    """The data column that holds the task name."""
    reasoning_tags: tuple[str, ...] = TAGS
    """The tags between which the model thinks: what stands up to the last closing one is no answer, and a thought that
    never closes has none. `[]` = the model has no thoughts."""
    answer: Place = ""
    """Where `math`, `numeric`, `exact_match` find an answer: `tag` (the last `<answer>`), `box` (the last `\\boxed`),
    `mark` (the last `####`), `label` (the last `Answer:`) or `line` (the last one); empty = the first that there is."""
    path: Path | None = None
    """Folder of the user's own modules, last on the import path."""
    replicas: int = Field(1, ge=1)
    """Reward services that share the work; `headrace scale reward N` changes their number during the run."""
    concurrency: int = Field(8, ge=1)
    """Groups scored concurrently."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds for a scorer to score one group (for a user's function: one call), from its turn on. `code` has its own
    limits."""
    processes: int = Field(1, ge=1)
    """Worker processes of each scorer that uses them: `math`, `code` and the user's own functions."""
    failures_in_row: int = Field(3, ge=1)
    """Consecutive groups that a scorer fails completely before it counts as down: nothing is consumed until it
    recovers."""
    outage_s: float = Field(300.0, gt=0)
    """Seconds for which a scorer may be down before the run stops with the reason."""
    http_hosts: tuple[str, ...] = ()
    """Further host names under which `POST /score` may be requested, such as `reward` where containers call it so."""
    allow_hosts: tuple[str, ...] = ()
    """`host` or `host:port` of endpoints that scorers may call although their address is private or loopback."""

    @field_validator("reasoning_tags")
    @classmethod
    def _are_two(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if tags and (len(tags) != 2 or not all(tags) or tags[0] == tags[1]):
            raise ValueError(f"reasoning_tags = {list(tags)}: give the opening and the closing tag, or [] for none")
        return tags


class RewardSettings(ServiceSettings):
    """All settings of the reward service. Built once in `__main__`, passed down, never looked up."""

    reward: RewardTable = RewardTable()
    eval_tasks: dict[str, str] = Field(default_factory=dict)
    """Evaluation set -> the task whose scorers judge it; empty = by the row's column."""
    events: Path | None = None
    """Folder of its event log, as it is mounted here; none = RUN/events/reward."""
