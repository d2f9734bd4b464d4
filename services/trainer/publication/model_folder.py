"""What an engine's own checksums of `model.path` must be: the weights that it loads before its first publication.

Both sides then have the same bytes, at any version of the trainer. So if an engine's checksums of a version differ
from those of `checksums`, the folder's show whether the mapping of the engine's layout is wrong, or the weights are.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headrace.services.trainer.publication.checksums import engine_checksums
from headrace.services.trainer.publication.index_check import weight_files
from headrace.wire.contracts.fused_names import place
from headrace.wire.errors import ConfigError, ContractError
from headrace.wire.v1.common_pb2 import WeightPlan


def folder_checksums(
    folder: Path, plan: WeightPlan, layout: str, config: Mapping[str, object], device: torch.device | None = None
) -> dict[str, str]:
    """Returns the engine's tensor name -> hash, for the plan's tensors in `folder`, in the dtypes of the plan.

    One parameter of the engine is in memory at a time. Besides what `engine_checksums` leaves out, a parameter that is
    fused of several tensors and constant throughout (biases before the first step) is left out: it would not reveal
    their order. Raises ContractError (`bad_weights`) for a folder that cannot be read.
    """
    dtypes = {spec.name: spec.dtype for bucket in plan.buckets for spec in bucket.tensors}
    wholes: dict[str, list[str]] = {}
    for name in dtypes:
        wholes.setdefault(place(name)[0], []).append(name)
    found: dict[str, str] = {}
    try:
        where = weight_files(folder)
        with ExitStack() as stack:
            files = {path: stack.enter_context(safe_open(path, framework="pt")) for path in set(where.values())}
            for names in wholes.values():
                if all(name in where for name in names):
                    parts = [(name, _as_sent(files[where[name]], name, dtypes[name])) for name in names]
                    if not _one_number(parts):
                        found |= engine_checksums(parts, layout, config, device)
    except ConfigError as error:
        raise ContractError("bad_weights", str(error)) from error
    except (OSError, SafetensorError) as error:
        raise ContractError("bad_weights", f"model.path {folder}: {error}") from error
    return found


def _as_sent(file: Any, name: str, dtype: str) -> Tensor:
    """Casts to the dtype in which it travels: rounded to the nearest even, as trainer and engine round."""
    tensor: Tensor = file.get_tensor(name)
    return tensor.to(getattr(torch, dtype))


def _one_number(parts: list[tuple[str, Tensor]]) -> bool:
    if len(parts) == 1:
        return False
    return min(float(part.min()) for _, part in parts) == max(float(part.max()) for _, part in parts)
