"""Checks that the optional packages of a config are installed."""

from headrace.config.resolve import Resolved
from headrace.services.trainer.config.trackers import check_installed as check_trackers
from headrace.wire import tracing
from headrace.wire.errors import ConfigError


def check_extras(resolved: Resolved) -> None:
    """Checks tracing and trackers. Raises ConfigError naming the place in the config and the extra that is missing."""
    config = resolved.config
    for keys, check in (
        (("tracing", "endpoint"), lambda: tracing.check_ready(config.tracing)),
        (("trackers", "use"), lambda: check_trackers(config.trackers)),
    ):
        try:
            check()
        except ConfigError as error:
            raise ConfigError(f"{resolved.place(*keys)}: {error}") from None
