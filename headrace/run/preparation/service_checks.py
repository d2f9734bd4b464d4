"""Lets each service try in a child process what only it can load: scorers, environment, functions, models."""

import contextlib
import json
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.config.reward_checks import all_leaves, has_models
from headrace.config.schema import RunFile
from headrace.data.__main__ import BAD_INPUT
from headrace.run.own_code import StagedCode
from headrace.run.preparation.data_files import QUIET
from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.once import ChildFailedError, python, run_once
from headrace.wire.errors import ConfigError, DataError, WaitTimeoutError
from headrace.wire.rundir.layout import RunPaths

_BEGIN_S = 120.0
"""Longest start of a service's process: libraries are imported from a cold disk."""
_CHECK_TIMEOUT_S = 180.0
_SCORERS_S = 120.0
"""Longest load of a scorer, after which the service refuses it in words of its own (`services/reward/user`)."""
_BASE_TIMEOUT_S = 3600.0
_SHOWN = 4
"""Names in one line."""


def check_rows(config: RunFile, run_dir: Path, env: dict[str, str], forks: ForkServer | None = None) -> None:
    """Checks the rows against the scoring models, also when a run is resumed: it keeps its data, not its scorers."""
    if not has_models(config):
        return
    argv = python("headrace.data", "--check", "--config", str(RunPaths(run_dir).run_toml), "--out", str(run_dir))
    try:
        _check("checking the rows", argv, env | QUIET, forks)
    except ChildFailedError as error:
        raise DataError(error.message if error.status == BAD_INPUT else str(error)) from None


def check_reward(resolved: Resolved, run_dir: Path, env: dict[str, str], forks: ForkServer | None) -> None:
    """Checks in a reward service that its scorers load: a user's own module runs only there."""
    argv = python("headrace.services.reward", "--check", "--config", str(RunPaths(run_dir).settings("reward-0")))
    table, place = resolved.config.reward, resolved.place("reward", "scorers")
    names = _scorer_names(resolved.config)
    # The service's own deadline ends first: its message names the scorer and the module.
    seconds = _BEGIN_S + _SCORERS_S
    try:
        _check(f"checking the scorers ({names})", argv, env, forks, seconds=seconds)
    except ChildFailedError as error:
        raise ConfigError(f"{place}: {_refusal(error)}") from None
    except WaitTimeoutError as error:
        folder = f" of {table.path}" if table.path else ""
        raise ConfigError(f"{place}: {error}; look for what never ends at module level{folder}") from None


def _scorer_names(config: RunFile) -> str:
    """The scorers of all rubrics for one line, each once; modules of the user's own first, and only the first few."""
    names = sorted(dict.fromkeys(scorer.name for scorer in all_leaves(config)), key=lambda name: ":" not in name)
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def check_environment(resolved: Resolved, run_dir: Path, env: dict[str, str], code: StagedCode | None) -> None:
    """Loads the environment in a child of its service, as an episode would."""
    table = resolved.config.environment
    if not table.on:
        return
    folder = ("--code", str(code.aside)) if code is not None else ()
    settings = ("--config", str(RunPaths(run_dir).settings("environment-0")))
    argv = python("headrace.services.environment", "--check", *folder, *settings)
    try:
        # As above: `environment.start_s` ends first.
        _check(f"loading the environment ({table.label})", argv, env, None, seconds=_BEGIN_S + table.start_s)
    except ChildFailedError as error:
        message = _refusal(error, code, table.path)
        key = "renderer" if message.startswith("environment.renderer") else table.key
        raise ConfigError(f"{resolved.place('environment', key)}: {message}") from None
    except WaitTimeoutError as error:
        place = resolved.place("environment", table.key)
        raise ConfigError(f"{place}: {error}; look for what never ends in {table.path or table.label}") from None


def check_functions(
    resolved: Resolved, run_dir: Path, env: dict[str, str], code: StagedCode | None, forks: ForkServer | None
) -> None:
    """Calls the user's own functions of the algorithm in a trainer process, on a made batch of the run's shapes."""
    table = resolved.config.algorithm
    if not table.own_functions:
        return
    folder = ("--code", str(code.aside)) if code is not None else ()
    settings = ("--config", str(RunPaths(run_dir).settings("trainer")))
    argv = python("headrace.services.trainer", "--check-algorithm", *folder, *settings)
    place = resolved.place("algorithm", "advantage" if table.advantage in table.own_functions else "policy_loss")
    names = ", ".join(table.own_functions)
    try:
        _check(f"checking the algorithm's functions ({names})", argv, env, forks)
    except ChildFailedError as error:
        raise ConfigError(f"{place}: {_refusal(error, code, table.path)}") from None
    except WaitTimeoutError as error:
        where = f" in {table.path}" if table.path else ""
        raise ConfigError(
            f"{place}: {error}; look for what never ends{where}, at module level or in the functions"
        ) from None


def write_engine_base(resolved: Resolved, run_dir: Path, env: dict[str, str], *, settings: Path) -> None:
    """Writes the base model that the engines of a QLoRA run load, rounded as in training, in a trainer process."""
    if resolved.config.model.lora.quantize == "none":
        return
    argv = python("headrace.services.trainer", "--write-base", "--config", str(settings))
    try:
        _check("writing the engines' base model", argv, env, None, seconds=_BASE_TIMEOUT_S)
    except ChildFailedError as error:
        raise ConfigError(f"{resolved.place('model', 'lora', 'quantize')}: {_refusal(error)}") from None


def _check(
    what: str,
    argv: tuple[str, ...],
    env: dict[str, str],
    forks: ForkServer | None,
    *,
    seconds: float = _CHECK_TIMEOUT_S,
) -> None:
    """Runs a child. Raises ChildFailedError, WaitTimeoutError."""
    run_once(what, argv, env=env, log=None, timeout_s=seconds, fork_server=forks)


def _refusal(error: ChildFailedError, code: StagedCode | None = None, folder: Path | None = None) -> str:
    """The message with which a service refused its settings, from its log; the whole error for any other log."""
    line: object = None
    # A user's module may write anything to stderr, and end the process.
    with contextlib.suppress(ValueError, IndexError, RecursionError):
        line = json.loads(error.message.splitlines()[-1])
    said = str(line["error"]) if isinstance(line, dict) and "error" in line else str(error)
    # The user edits the folder, not its copy.
    return said if code is None else said.replace(str(code.aside), str(folder))
