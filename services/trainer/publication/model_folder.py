"""What an engine's own checksums of `model.path` must be: the weights that a server loads before its first publication.

There both sides have the same bytes, whatever version the trainer is at. So where a server's checksums of a version are
not those that `checksums` says, those of the folder tell whether the table of the server's layout is wrong, or the
weights.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from services.trainer.publication.checksums import engine_checksums
from services.trainer.publication.index_check import weight_files
from wire.errors import ConfigError, ContractError
from wire.fused_names import place
from wire.v1.common_pb2 import WeightPlan


def folder_checksums(
    folder: Path, plan: WeightPlan, layout: str, config: Mapping[str, Any], device: torch.device | None = None
) -> dict[str, str]:
    """The engine's tensor name -> hash, of what `folder` has of the plan's tensors, in the dtypes of the plan.

    One parameter of the engine at a time is in memory. Left out is, besides what `engine_checksums` leaves out, what is
    fused of several tensors and one and the same number throughout (biases before the first step): it would not tell
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
    """In the dtype in which it travels: rounded as trainer and engine round, to the nearest even."""
    tensor: Tensor = file.get_tensor(name)
    return tensor.to(getattr(torch, dtype))


def _one_number(parts: list[tuple[str, Tensor]]) -> bool:
    if len(parts) == 1:
        return False
    return min(float(part.min()) for _, part in parts) == max(float(part.max()) for _, part in parts)
