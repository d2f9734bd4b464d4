"""What a backend may be told."""

from dataclasses import dataclass, field

import torch

from services.trainer.optimizers import OptimizerOptions

BACKENDS = ("auto", "single", "fsdp2", "deepspeed")
_CPU_OVERHEAD_TOKENS = 32
_GPU_OVERHEAD_TOKENS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """How model and optimizer are spread over the ranks."""

    name: str = "auto"
    """Of `BACKENDS`; auto: one device for one rank, FSDP2 for several."""
    zero_stage: int = 2
    """DeepSpeed's: 1 shards the optimizer, 2 the gradients too, 3 the weights too."""
    persistent_elements: int = 100_000
    """Of DeepSpeed's stage 3: smaller weights stay whole on every rank."""
    cpu_offload: bool = False
    """Shards and optimizer in host memory."""
    compiled: bool = False
    """The layers through torch.compile."""
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)


def overhead_tokens(device: torch.device) -> int:
    """What one more micro-batch costs on `device`, in tokens."""
    return _GPU_OVERHEAD_TOKENS if device.type == "cuda" else _CPU_OVERHEAD_TOKENS
