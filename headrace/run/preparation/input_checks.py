"""Checks of a settled config that start no service: model, data files, packages, broker."""

import asyncio
import re
from pathlib import Path

from headrace.config.resolve import DATA_SUFFIXES, Resolved
from headrace.config.settle import check_dtype
from headrace.model.model_check import check_model
from headrace.run.extras import check_extras
from headrace.services.trainer.config.checks import group_problem
from headrace.supervisor.broker import check_external, find_server
from headrace.wire.errors import ConfigError, DataError

_CLOSING = re.compile(r"[<\[]/[\w:]*(?:think|thought|reason)[\w:]*[>\]]", re.IGNORECASE)
"""A tag that closes a thought, as chat templates and tokenizers have it."""


def check_input(resolved: Resolved, *, has_model: bool = True, scan: bool = False) -> None:
    """Checks a settled config as far as any machine can without writing; a `scan` reads all weights.

    Raises ConfigError or DataError.
    """
    config = resolved.config
    check_dtype(resolved)
    try:
        if has_model:
            check_model(config.model.path, engine=config.rollout.engine, scan=scan)
    except ConfigError as error:
        raise ConfigError(f"{resolved.place('model', 'path')}: {error}") from None
    if has_model and config.run.stage == "rl":
        _check_reasoning_tags(resolved)
    reason = group_problem(config.algorithm, config.batch.group_size)
    if reason is not None:
        raise ConfigError(f"{resolved.place('batch', 'group_size')}: {reason}")
    check_data_files(resolved)


def _check_reasoning_tags(resolved: Resolved) -> None:
    """Raises ConfigError if the model's chat template closes thoughts by another tag than the scorers look for."""
    model, tags = resolved.config.model.path, resolved.config.reward.reasoning_tags
    files = [model / name for name in ("chat_template.jinja", "tokenizer_config.json")]
    closing = {tag for file in files if file.is_file() for tag in _CLOSING.findall(file.read_text(errors="replace"))}
    if tags and closing and tags[1] not in closing:
        close = min(closing)
        raise ConfigError(
            f"{resolved.place('reward', 'reasoning_tags')}: the chat template of {model} closes thoughts by {close}, "
            f"and scorers would take them for the answer; set reward.reasoning_tags = "
            f'["{close.replace("/", "", 1)}", "{close}"], or [] if the model has none'
        )


def check_around(resolved: Resolved, *, fresh: bool) -> None:
    """Checks that this machine has the packages and the broker of the config. Raises ConfigError."""
    config = resolved.config
    check_extras(resolved)
    if config.broker.url:
        seconds = config.broker.connect_timeout_s
        place = resolved.place("broker", "url")
        asyncio.run(check_external(config.broker.url, place, seconds, run_id=config.run.id, fresh=fresh))
    else:
        find_server()


def check_data_files(resolved: Resolved) -> None:
    """Raises DataError if a data file does not exist."""
    for key in ("path", "eval_path"):
        path = getattr(resolved.config.data, key)
        if path.endswith(DATA_SUFFIXES) and not Path(path).is_file():
            raise DataError(f"{resolved.place('data', key)}: there is no file {path}")
