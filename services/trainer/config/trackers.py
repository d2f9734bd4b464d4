"""`[trackers]`, and whether the libraries of the trackers are installed. Imports none of them, and no torch."""

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from headrace.wire.config.settings import Table
from headrace.wire.errors import ConfigError

TrackerName = Literal["wandb", "tensorboard", "mlflow", "trackio"]
_DATABASE = ("sqlalchemy", "alembic")
"""What MLflow needs for a database of its own; a server needs neither."""


class WandbTable(Table):
    """`[trackers.wandb]`: Weights & Biases. Its key comes from its own surroundings: WANDB_API_KEY or `wandb login`."""

    entity: str = ""
    """Team or user; empty = the key's own."""
    mode: Literal["online", "offline"] = "online"
    """`offline` writes a folder that `wandb sync` uploads later."""
    dir: Path = Path()
    """Folder for its files; empty = RUN/trackers."""
    url: str = ""
    """URL of your own server; empty = wandb's default."""


class TensorBoardTable(Table):
    """`[trackers.tensorboard]`."""

    dir: Path = Path()
    """Folder of the event files; empty = RUN/trackers/tensorboard."""


class MlflowTable(Table):
    """`[trackers.mlflow]`: the experiment is `trackers.project`."""

    uri: str = ""
    """URI of the tracking server (`http://...`) or database (`sqlite:///...`); empty = RUN/trackers/mlflow.db."""


class TrackioTable(Table):
    """`[trackers.trackio]`: local; `trackio show` shows it."""

    space: str = ""
    """A Hugging Face Space to log to, as `owner/name`; empty = none, the metrics stay on this machine."""


class TrackersTable(Table):
    """`[trackers]`: receivers of the metrics of steps and evaluations. A dead one never stops or delays a run."""

    use: tuple[TrackerName, ...] = ()
    """Trackers to write to; each needs the extra of its name: `headrace[wandb]`, and so on."""
    project: str = Field("headrace", min_length=1)
    """Project of the run, if the tracker supports projects."""
    name: str = ""
    """Name of the run; empty = the name of the run directory."""
    finish_s: float = Field(20.0, gt=0)
    """Seconds for a tracker to flush at the end of the run; records that it misses are counted."""
    completions: int = Field(0, ge=0, le=1000)
    """Rollouts of a step (the best, the worst, others at random) that trackers get with prompt and answer; 0 = none."""
    wandb: WandbTable = WandbTable()
    tensorboard: TensorBoardTable = TensorBoardTable()
    mlflow: MlflowTable = MlflowTable()
    trackio: TrackioTable = TrackioTable()

    @field_validator("use")
    @classmethod
    def _each_once(cls, value: tuple[TrackerName, ...]) -> tuple[TrackerName, ...]:
        if len(set(value)) != len(value):
            raise ValueError("name each tracker once")
        return value


def check_installed(table: TrackersTable) -> None:
    """Raises ConfigError naming the extra of a tracker that is not installed."""
    for name in table.use:
        local = name == "mlflow" and not table.mlflow.uri.startswith(("http://", "https://"))
        for module in (name, *(_DATABASE if local else ())):
            if find_spec(module) is None:
                raise ConfigError(
                    f"[trackers] use = [{name!r}] needs the package {module}: pip install 'headrace[{name}]', or leave "
                    f"{name!r} out"
                )
