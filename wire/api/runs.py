"""`/api/runs` and `/api/compare`: the sibling run directories, and several runs side by side."""

from pydantic import JsonValue

from headrace.wire.api.model import ApiModel, Number
from headrace.wire.api.series import MetricSeries


class RunRow(ApiModel):
    """One run directory."""

    name: str
    id: str
    state: str
    steps: Number
    reward_mean: Number | None
    """Mean reward of its last step."""
    accuracy: Number | None
    """Accuracy of its last evaluation."""
    began: float
    """Unix seconds of its first event; before that, of its config's last write."""
    current: bool
    """The run that answers."""


class ComparedRun(MetricSeries):
    """Curves and evaluations of one run."""

    name: str


class ConfigKey(ApiModel):
    """One key of the configs, flattened to dotted names."""

    key: str
    values: tuple[JsonValue, ...]
    """One a run, null where the run lacks the key."""
    differs: bool


class RunComparison(ApiModel):
    """Answer of `/api/compare`."""

    runs: tuple[ComparedRun, ...]
    config: tuple[ConfigKey, ...]
    """Differing keys first."""
