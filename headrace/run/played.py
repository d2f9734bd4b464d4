"""What a run plays: its tasks name the environment with which it began, and go on with no other one."""

from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.data.tasks import prepared_digest
from headrace.services.environment.identity import environment_digest
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.own_code import environment_code
from headrace.wire.telemetry.logs import get_logger

log = get_logger("headrace.code")


def check_same_environment(resolved: Resolved, run_dir: Path) -> str:
    """The digest that the run's tasks name; empty if nothing is played.

    Raises ConfigError if the environment of the config is another one. A folder that is gone since the start is no
    other one: the run has its copy.
    """
    table = resolved.config.environment
    if not table.on:
        return ""
    place = resolved.place("environment", "path" if table.path is not None else table.key)
    copy = environment_code(run_dir).folder
    if table.path is not None and not table.path.is_dir() and copy.is_dir():
        log.info("environment_path_is_gone", path=str(table.path), used=str(copy))
        table = table.model_copy(update={"path": copy})
    if table.path is not None and not table.path.is_dir():
        raise ConfigError(f"{place}: there is no folder {table.path}")
    try:
        of_tasks, now = prepared_digest(run_dir), environment_digest(table)
    except OSError as error:
        raise ConfigError(f"{place}: {error}") from error
    if of_tasks != now:
        raise ConfigError(
            f"{place}: the environment's code or settings have changed since the run began (digest {now}, was "
            f"{of_tasks or 'none: its prompts are completed'}): restore them, or begin a new run"
        )
    return now
