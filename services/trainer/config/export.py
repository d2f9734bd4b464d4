"""Settings of a checkpoint export. Imports no torch: `headrace` writes them."""

from pathlib import Path

from pydantic import Field

from headrace.wire.config.settings import ServiceSettings, Table


class ExportTable(Table):
    """`[export]`: which checkpoint, and where its model goes."""

    step: int = Field(-1, ge=-1)
    """-1 = the newest that proves whole."""
    target: Path = Path()
    """Folder to write; one that is there is replaced. Empty = `RUN/exports/step-000012`."""


class ExportSettings(ServiceSettings):
    """The run's settings as its trainer knows them, and `[export]`."""

    export: ExportTable = ExportTable()
