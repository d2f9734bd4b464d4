"""Checks that the libraries of the trackers are installed. Imports none of them, and no torch."""

from importlib.util import find_spec

from headrace.services.trainer.config.trackers import TrackersTable
from headrace.wire.errors import ConfigError

_DATABASE = ("sqlalchemy", "alembic")
"""What MLflow needs for a database of its own; a server needs neither."""


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
