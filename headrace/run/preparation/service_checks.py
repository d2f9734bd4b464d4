"""Lets each service try in a child process what only it can load: scorers, environment, functions, models."""

import json
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.config.reward_checks import has_models
from headrace.config.schema import RunFile
from headrace.data.__main__ import BAD_INPUT
from headrace.run.own_code import StagedCode
from headrace.services.trainer.algorithms.own import is_own
from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.once import ChildFailedError, python, run_once
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir.layout import RunPaths

_CHECK_TIMEOUT_S = 120.0
_BASE_TIMEOUT_S = 3600.0


def check_rows(config: RunFile, run_dir: Path, env: dict[str, str], forks: ForkServer | None = None) -> None:
    """Checks the rows against the scoring models, also when a run is resumed: it keeps its data, not its scorers."""
    if not has_models(config):
        return
    argv = python("headrace.data", "--check", "--config", str(RunPaths(run_dir).run_toml), "--out", str(run_dir))
    try:
        run_once("checking the rows", argv, env=env, log=None, timeout_s=_CHECK_TIMEOUT_S, fork_server=forks)
    except ChildFailedError as error:
        raise DataError(error.message if error.status == BAD_INPUT else str(error)) from None


def check_reward(resolved: Resolved, run_dir: Path, env: dict[str, str], forks: ForkServer | None) -> None:
    """Checks in a reward service that its scorers load: a user's own module runs only there."""
    argv = python("headrace.services.reward", "--check", "--config", str(RunPaths(run_dir).settings("reward-0")))
    try:
        run_once("checking the scorers", argv, env=env, log=None, timeout_s=_CHECK_TIMEOUT_S, fork_server=forks)
    except ChildFailedError as error:
        raise ConfigError(f"{resolved.place('reward', 'scorers')}: {_refusal(error.message)}") from None


def check_environment(resolved: Resolved, run_dir: Path, env: dict[str, str], code: StagedCode | None) -> None:
    """Loads the environment in a child of its service, as an episode would."""
    table = resolved.config.environment
    if not table.on:
        return
    folder = ("--code", str(code.aside)) if code is not None else ()
    settings = ("--config", str(RunPaths(run_dir).settings("environment-0")))
    argv = python("headrace.services.environment", "--check", *folder, *settings)
    try:
        run_once("loading the environment", argv, env=env, log=None, timeout_s=_CHECK_TIMEOUT_S)
    except ChildFailedError as error:
        message = _refusal(error.message)
        if code is not None:
            # The user edits the folder, not its copy.
            message = message.replace(str(code.aside), str(table.path))
        key = "renderer" if message.startswith("environment.renderer") else table.key
        raise ConfigError(f"{resolved.place('environment', key)}: {message}") from None


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
    key = "advantage" if is_own(table.advantage) else "policy_loss"
    try:
        run_once(
            "checking the algorithm's functions", argv, env=env, log=None, timeout_s=_CHECK_TIMEOUT_S, fork_server=forks
        )
    except ChildFailedError as error:
        message = _refusal(error.message)
        if code is not None:
            # The user edits the folder, not its copy.
            message = message.replace(str(code.aside), str(table.path))
        raise ConfigError(f"{resolved.place('algorithm', key)}: {message}") from None


def write_engine_base(resolved: Resolved, run_dir: Path, env: dict[str, str], *, settings: Path) -> None:
    """Writes the base model that the engines of a QLoRA run load, rounded as in training, in a trainer process."""
    if resolved.config.model.lora.quantize == "none":
        return
    argv = python("headrace.services.trainer", "--write-base", "--config", str(settings))
    try:
        run_once("writing the engines' base model", argv, env=env, log=None, timeout_s=_BASE_TIMEOUT_S)
    except ChildFailedError as error:
        raise ConfigError(f"{resolved.place('model', 'lora', 'quantize')}: {_refusal(error.message)}") from None


def _refusal(log: str) -> str:
    """The message with which a service refused its settings, from its log."""
    try:
        line: dict[str, str] = json.loads(log.splitlines()[-1])
        return line.get("error", log)
    except (json.JSONDecodeError, IndexError):
        return log
