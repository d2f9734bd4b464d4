"""Checks of a settled config that start no service: model, data files, packages, broker."""

import asyncio
import re
from pathlib import Path

from headrace.config.resolve import DATA_SUFFIXES, Resolved
from headrace.model.model_check import ModelFacts, check_model
from headrace.run.extras import check_extras
from headrace.services.trainer.config.checks import group_problem
from headrace.supervisor.broker import check_external, find_server
from headrace.wire.errors import ConfigError, DataError

_CLOSING = re.compile(r"[<\[]/[\w:]*(?:think|thought|reason)[\w:]*[>\]]", re.IGNORECASE)
"""A tag that closes a thought, as chat templates and tokenizers have it."""


def check_input(resolved: Resolved, *, scan: bool = False) -> None:
    """Checks a settled config as far as any machine can without writing; a `scan` reads all weights.

    Raises ConfigError or DataError.
    """
    config = resolved.config
    check_dtype(resolved)
    if facts := check_model_folder(resolved, scan=scan):
        _check_reasoning_tags(resolved)
        if facts.heads % config.trainer.cp:
            raise ConfigError(
                f"{resolved.place('trainer', 'cp')}: {config.trainer.cp} does not divide the model's {facts.heads} "
                "attention heads, of which each rank takes a part"
            )
    reason = group_problem(config.algorithm, config.batch.group_size)
    if reason is not None:
        raise ConfigError(f"{resolved.place('batch', 'group_size')}: {reason}")
    check_data_files(resolved)


def check_dtype(resolved: Resolved) -> None:
    """Raises ConfigError for float32 in SGLang on a GPU: its norms and FlashAttention 3 have only 16-bit kernels."""
    if resolved.config.model.dtype == "float32" and resolved.config.serves_on_cuda:
        raise ConfigError(
            f"{resolved.place('model', 'dtype')}: SGLang has no float32 kernels on a GPU, and its server would die at "
            'its first forward pass; set model.dtype = "bfloat16" (a resumed run keeps its own: start a new one), or '
            'rollout.engine = "torch"'
        )


def check_model_folder(resolved: Resolved, *, scan: bool = False) -> ModelFacts | None:
    """Facts of the model, whose folder the stage can use; None for one that is still to be made or downloaded.

    A `scan` reads all weights. Raises ConfigError.
    """
    config = resolved.config
    if table := resolved.to_make:
        if table.kind == "text" and not table.text.is_file():
            place = resolved.place("model", "make", "text")
            raise ConfigError(
                f"{place}: there is no file {table.text}; a tokenizer of the kind text is learned from one"
            )
        return None
    if config.model.hub_id:
        return None
    engine = config.rollout.engine if config.run.stage == "rl" else ""
    try:
        return check_model(config.model.path, engine=engine, scan=scan)
    except ConfigError as error:
        raise ConfigError(f"{resolved.place('model', 'path')}: {error}") from None


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
    for one in resolved.config.eval:
        if one.path.endswith(DATA_SUFFIXES) and not Path(one.path).is_file():
            raise DataError(f"{resolved.place('eval')} {one.name} path: there is no file {one.path}")
