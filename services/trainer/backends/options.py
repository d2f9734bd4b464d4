"""Options of a backend."""

from dataclasses import dataclass, field

import torch

from headrace.services.trainer.model.optimizers import OptimizerOptions

BACKENDS = ("auto", "single", "fsdp2", "deepspeed")
_CPU_OVERHEAD_TOKENS = 32
_GPU_OVERHEAD_TOKENS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """How model and optimizer are spread over the ranks."""

    name: str = "auto"
    """One of `BACKENDS`; auto: one device for one rank, FSDP2 for several."""
    zero_stage: int = 2
    """DeepSpeed's: 1 shards the optimizer, 2 the gradients too, 3 the weights too."""
    persistent_elements: int = 100_000
    """For DeepSpeed's stage 3: weights with fewer elements stay whole on every rank."""
    cpu_offload: bool = False
    """Keeps shards and optimizer state in host memory."""
    compiled: bool = False
    """Compiles the layers with torch.compile."""
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)


def overhead_tokens(device: torch.device) -> int:
    """What one more micro-batch costs on `device`, in tokens."""
    return _GPU_OVERHEAD_TOKENS if device.type == "cuda" else _CPU_OVERHEAD_TOKENS
