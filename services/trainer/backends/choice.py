"""Chooses the backend that the settings name."""

import torch

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.backends.context_check import check_context
from headrace.services.trainer.backends.options import BACKENDS, BackendOptions
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule
from headrace.wire.config.nearest import unknown
from headrace.wire.errors import ConfigError


def make_backend(module: TrainedModule, ranks: Ranks, device: torch.device, options: BackendOptions) -> Backend:
    """Builds the backend, which takes over `module`, the same on every rank.

    Raises ConfigError for unsupported settings, and for a model whose tokens cannot be divided over ranks.
    """
    name = choose(options.name, ranks.size)
    match name:
        case "single":
            if options.cpu_offload:
                raise ConfigError("trainer.cpu_offload needs trainer.backend = 'fsdp2' or 'deepspeed'")
            return SingleDevice(module, options=options)
        case "fsdp2":
            from headrace.services.trainer.backends.fsdp2 import FullyShardedBackend

            sharded = FullyShardedBackend(module, ranks, device, options)
            if ranks.context is not None:
                check_context(sharded)
            return sharded
        case _:
            from headrace.services.trainer.backends.deepspeed import DeepSpeedBackend

            zero: Backend = DeepSpeedBackend(module, ranks, device, options)
            return zero


def choose(name: str, ranks: int) -> str:
    """The backend for `ranks` ranks. Raises ConfigError for an unknown name, and for `single` with several ranks."""
    if name not in BACKENDS:
        raise ConfigError(f"trainer.backend {unknown(name, BACKENDS)}")
    if name == "single" and ranks > 1:
        raise ConfigError(f"trainer.backend 'single' has one rank, trainer.ranks is {ranks}: take 'auto' or 'fsdp2'")
    if name != "auto":
        return name
    return "single" if ranks == 1 else "fsdp2"
