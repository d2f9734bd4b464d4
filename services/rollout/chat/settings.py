"""Settings of an engine with a model folder, without a run. Imports no torch: `headrace` writes them."""

from pydantic import Field

from headrace.services.rollout.settings import RolloutSettings


class FolderSettings(RolloutSettings):
    """A replica's settings, with a folder as its model."""

    version: int = Field(0, ge=0)
    """Version of the weights in the folder: a number of steps."""
