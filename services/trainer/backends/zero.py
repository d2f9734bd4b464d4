"""How DeepSpeed is set up here, and how to read and write the weights and moments of its stages."""

import contextlib
import io
import os
import warnings
from typing import Any

import torch
from torch import Tensor

from headrace.services.trainer.backends.options import BackendOptions
from headrace.wire.errors import ConfigError

_BUCKET = 50_000_000
"""Elements that are reduced or gathered at a time: 200 MB."""
_EXTRA = "trainer.backend = 'deepspeed' needs the extra `deepspeed`: pip install 'headrace[deepspeed]'; or take 'fsdp2'"


def import_deepspeed(device: torch.device) -> Any:
    """Returns the package, its prints kept out of the log, where every line is JSON. Raises ConfigError if absent."""
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    os.environ.setdefault("LOCAL_RANK", str(device.index or 0))
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            import deepspeed
        except ModuleNotFoundError as error:
            raise ConfigError(_EXTRA) from error
    from deepspeed.utils import logger

    # Its shared-memory reductions must be compiled first, and wait without a deadline for a lost rank.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # It calls torch's collectives by deprecated names, which only its authors can change.
    warnings.filterwarnings("ignore", message="`torch.distributed", category=FutureWarning)
    logger.handlers.clear()
    logger.propagate = True
    return deepspeed


def zero_config(options: BackendOptions, device: torch.device) -> dict[str, object]:
    """Returns the engine's config. The engine does not count micro-batches: the backend marks the last one."""
    zero: dict[str, object] = {
        "stage": options.zero_stage,
        "reduce_bucket_size": _BUCKET,
        "allgather_bucket_size": _BUCKET,
        "stage3_prefetch_bucket_size": _BUCKET,
        "stage3_param_persistence_threshold": options.persistent_elements,
        "overlap_comm": device.type == "cuda",
    }
    if options.cpu_offload and device.type == "cuda":
        zero["offload_optimizer"] = {"device": "cpu"}
        if options.zero_stage == 3:
            zero["offload_param"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
    }


def whole_shape(weight: Tensor) -> torch.Size:
    """Shape of the whole weight, which stage 3 may have partitioned."""
    shape: torch.Size = getattr(weight, "ds_shape", weight.shape)
    return shape


def get_moment(weight: Tensor, key: str) -> Tensor:
    """Returns a moment of a weight, gathered. Every rank must call it."""
    from deepspeed.utils import safe_get_full_optimizer_state

    whole: Tensor = safe_get_full_optimizer_state(weight, key)
    return whole.view(whole_shape(weight))


def get_master(weight: Tensor) -> Tensor:
    """Returns the float32 master weight, gathered. Every rank must call it."""
    from deepspeed.utils import safe_get_full_fp32_param

    whole: Tensor = safe_get_full_fp32_param(weight)
    return whole.view(whole_shape(weight))


def set_master(weight: Tensor, whole: Tensor, rank: int, key: str | None = None) -> None:
    """Gives the optimizer this rank's part of a weight, or of its moment `key`."""
    from deepspeed.utils import (
        safe_set_full_fp32_param,
        safe_set_full_optimizer_state,
        safe_set_local_fp32_param,
        safe_set_local_optimizer_state,
    )

    last = () if key is None else (key,)
    if not hasattr(weight, "ds_id"):
        (safe_set_full_optimizer_state if key else safe_set_full_fp32_param)(weight, whole, *last)
        return
    # Stage 3 pads the last rank's part, which its own setter of whole tensors does not expect.
    size = weight.ds_tensor.numel()  # type: ignore[attr-defined]
    part = whole.new_zeros(size)
    mine = whole.flatten()[rank * size : (rank + 1) * size]
    part[: len(mine)] = mine
    (safe_set_local_optimizer_state if key else safe_set_local_fp32_param)(weight, part, *last)
