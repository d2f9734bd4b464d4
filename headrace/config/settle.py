"""Settles what a config leaves open: decided when the run directory is made, and kept by every resume."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from headrace.config.resolve import Resolved
from headrace.config.run_dir import STALE_BEFORE
from headrace.config.schema import RunFile
from headrace.config.tables import MakeTable
from headrace.wire.errors import ConfigError
from headrace.wire.host.regular_file import read_regular_text
from headrace.wire.rundir.layout import RunPaths

CUDA_HEAD_DIM = 64
"""The narrowest head that FlashInfer's kernels support (DISPATCH_HEAD_DIM in its include/flashinfer/utils.cuh)."""
_DTYPE_BEFORE = "float32"
"""Default of `model.dtype` before `auto` existed."""


def settle(resolved: Resolved, run_dir: Path, *, goes_on: bool) -> Resolved:
    """Settles `model.dtype`, `run.stale` and the shape of a made model, or restores those of a resumed run.

    `goes_on`: the run directory holds a run. Raises ConfigError if SGLang on a GPU cannot run the given head width.
    """
    kept = first_tables(run_dir) if goes_on else None
    config = _with_stale(_with_dtype(resolved.config, kept), resolved, kept)
    return dataclasses.replace(resolved, config=_with_shape(config, resolved, fresh=kept is None))


def serves_on_cuda(config: RunFile) -> bool:
    """Whether this config launches SGLang servers on GPUs."""
    table = config.rollout.sglang
    device = config.run.device if table.device == "auto" else table.device
    rl = config.run.stage == "rl" and config.rollout.engine == "sglang"
    return rl and not table.urls and device.startswith("cuda")


def check_dtype(resolved: Resolved) -> None:
    """Raises ConfigError for float32 in SGLang on a GPU: its norms and FlashAttention 3 have only 16-bit kernels."""
    config = resolved.config
    if config.model.dtype == "float32" and serves_on_cuda(config):
        raise ConfigError(
            f"{resolved.place('model', 'dtype')}: SGLang has no float32 kernels on a GPU, and its server would die at "
            'its first forward pass; set model.dtype = "bfloat16" (a resumed run keeps its own: start a new one), or '
            'rollout.engine = "torch"'
        )


def first_tables(run_dir: Path) -> dict[str, Any] | None:
    """The tables that the first start wrote; None if they cannot be read, which `check_resumable` then reports."""
    try:
        return tomllib.loads(read_regular_text(RunPaths(run_dir).run_toml))
    except (OSError, tomllib.TOMLDecodeError):
        return None


def _with_dtype(config: RunFile, kept: dict[str, Any] | None) -> RunFile:
    if config.model.dtype != "auto":
        return config
    if kept is not None:
        dtype = kept.get("model", {}).get("dtype", _DTYPE_BEFORE)
    else:
        dtype = "bfloat16" if config.run.device.startswith("cuda") else "float32"
    return config.model_copy(update={"model": config.model.model_copy(update={"dtype": dtype})})


def _with_stale(config: RunFile, resolved: Resolved, kept: dict[str, Any] | None) -> RunFile:
    """Chooses `mask` for episodes; keeps the old policy for a run from before `run.stale` existed. A given one wins."""
    if ("run", "stale") in resolved.layer:
        return config
    if kept is None:
        # Episodes last: `drop` would filter them by length, and `wait` makes all wait for the longest.
        stale = "mask" if config.environment.on else config.run.stale
    elif "stale" not in kept.get("run", {}):
        stale = STALE_BEFORE
    else:
        # What the first start has chosen is in no file of the user's: `prepare` reads that at each start.
        stale = kept["run"]["stale"] if config.environment.on else config.run.stale
    return config.model_copy(update={"run": config.run.model_copy(update={"stale": stale})})


def _with_shape(config: RunFile, resolved: Resolved, *, fresh: bool) -> RunFile:
    """Widens the heads of a made model for SGLang's kernels. Raises ConfigError if a narrower width is given."""
    table = config.model.make
    if not fresh or table is None or not serves_on_cuda(config) or table.head_dim >= CUDA_HEAD_DIM:
        return config
    keys = ("model", "make", "head_dim")
    if keys in resolved.layer:
        raise ConfigError(
            f"{resolved.place(*keys)}: {table.head_dim}, but SGLang's attention on a GPU needs {CUDA_HEAD_DIM} or more"
        )
    made = MakeTable.model_validate(table.model_dump() | {"head_dim": CUDA_HEAD_DIM})
    return config.model_copy(update={"model": config.model.model_copy(update={"make": made})})
