"""Settings of a replay. Imports no torch: `headrace` writes them."""

from pathlib import Path

from pydantic import Field

from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.config.settings import Table
from headrace.wire.rundir.layout import RunPaths


class ReplayTable(Table):
    """`[replay]`: which journaled batches are trained again."""

    source: Path
    """The run directory whose journal and checkpoints are read; nothing is written there."""
    after: int = Field(-1, ge=-1)
    """Version to begin with: 0 or a checkpoint; -1 = the oldest that the journal can be replayed from."""
    last: int = Field(0, ge=0)
    """The last step; 0 = the journal's end."""
    export: bool = False
    """Write the model that comes out to `run_dir/export`."""


class ReplaySettings(TrainerSettings):
    """The run's settings, perhaps with other hyper-parameters; `run_dir` is where the results go."""

    replay: ReplayTable

    @property
    def code_dir(self) -> Path:
        """The run that is replayed: its code trains again."""
        return self.replay.source

    @property
    def ids_dir(self) -> Path:
        """Where the replay holds its batches."""
        return RunPaths(self.run_dir).replay_source
