"""The routes by which weights can travel from and to this process."""

import torch
from torch import distributed as dist


def nccl_version() -> str:
    """Such as `2.28.9`; empty without NCCL. Unequal versions hang silently, so they are compared before."""
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        return ""
    return ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]


def device_names(device: torch.device) -> tuple[str, ...]:
    """The accelerator's name, unique over all machines; none for a CPU."""
    if device.type != "cuda":
        return ()
    return (str(torch.cuda.get_device_properties(device).uuid),)
