"""`/api/why/{step}` and `headrace why --json`: what moved most in a step against the steps before it."""

from headrace.wire.api.model import ApiModel


class ExampleRollout(ApiModel):
    """A rollout of what moved."""

    id: str
    """As `headrace explain` takes it."""
    step: int
    group_index: int
    value: float
    """Its own."""
    reward: float | None
    text: str
    """First characters of its prompt, and of its answer."""


class MovedRow(ApiModel):
    """A quantity of the step, and the same in the steps before."""

    measure: str
    """A key of `metrics.jsonl`, or named like one."""
    column: str
    """What divides the rollouts: `replica_id`, or a column of the data; empty: nothing."""
    label: str
    """The column's value in this part."""
    unit: str
    before: float
    """Mean of the steps before `since`."""
    now: float
    size: float
    """Distance in standard deviations from step to step, or of the sampling of rollouts where those are larger."""
    since: int
    """First of the steps up to this one that all lie on its side of those before."""
    examples_before: tuple[ExampleRollout, ...] = ()
    examples_now: tuple[ExampleRollout, ...] = ()


class StepDifferences(ApiModel):
    """What moved in a step, the largest first."""

    step: int
    chosen: str = ""
    """Why this step, where none was asked for."""
    steps_before: tuple[int, ...]
    """Those whose rollouts were compared; numbers of `metrics.jsonl` are compared with those of more steps."""
    rollouts: int
    rollouts_before: int
    rows: tuple[MovedRow, ...]
    notes: tuple[str, ...]
    """What could not be read."""
