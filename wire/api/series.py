"""`/api/series`, `/api/log` and the data of the events of `/api/events`."""

from pydantic import BaseModel, ConfigDict, JsonValue, RootModel

from headrace.wire.api.model import ApiModel, Metrics
from headrace.wire.api.status import EvaluationRow


class CurvePoints(ApiModel):
    """One metric: `y[i]` at step `x[i]`; None where the step has no number."""

    x: tuple[int, ...]
    y: tuple[float | None, ...]


class MetricSeries(ApiModel):
    """Answer of `/api/series`."""

    last: int
    """The last step; 0 before the first."""
    names: tuple[str, ...]
    """All metrics that the run has."""
    series: dict[str, CurvePoints]
    """Metric -> its curve, for those that were asked for and exist."""
    evals: tuple[EvaluationRow, ...]


class LogRecord(BaseModel):
    """One run-level event; further fields depend on the event."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)
    __pydantic_extra__: dict[str, JsonValue]

    t: float
    """Unix seconds."""
    event: str
    service: str
    """The service that wrote it."""


class StepMetrics(RootModel[Metrics]):
    """Data of the event `step`: the numbers of one line of `metrics.jsonl`, `step` among them."""


class Resync(ApiModel):
    """Data of the event `resync`: the client reloads the series."""

    last: int
    """The last step."""
