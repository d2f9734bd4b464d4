"""Whether the packages are there that a config asks for beyond the services' own."""

from headrace.config.resolve import Resolved
from services.trainer.trackers.installed import check_installed as check_trackers
from wire import tracing
from wire.errors import ConfigError


def check_extras(resolved: Resolved) -> None:
    """Raises ConfigError naming the place in the config and the extra that is missing."""
    config = resolved.config
    for keys, check in (
        (("tracing", "endpoint"), lambda: tracing.check_ready(config.tracing)),
        (("trackers", "use"), lambda: check_trackers(config.trackers)),
    ):
        try:
            check()
        except ConfigError as error:
            raise ConfigError(f"{resolved.place(*keys)}: {error}") from None
