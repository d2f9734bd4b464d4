"""The backend that the settings name."""

import torch

from services.trainer.backends.backend import Backend
from services.trainer.backends.options import BACKENDS, BackendOptions
from services.trainer.backends.single import SingleDevice
from services.trainer.model import TrainedModule
from services.trainer.ranks import Ranks
from wire.errors import ConfigError


def make_backend(module: TrainedModule, ranks: Ranks, device: torch.device, options: BackendOptions) -> Backend:
    """Takes `module` over, the same one on every rank. Raises ConfigError for what cannot be combined."""
    name = choose(options.name, ranks.size)
    match name:
        case "single":
            if options.cpu_offload:
                raise ConfigError("trainer.cpu_offload needs trainer.backend = 'fsdp2' or 'deepspeed'")
            return SingleDevice(module, options=options)
        case "fsdp2":
            from services.trainer.backends.fsdp2 import FullyShardedBackend

            return FullyShardedBackend(module, ranks, device, options)
        case _:
            from services.trainer.backends.deepspeed import DeepSpeedBackend

            zero: Backend = DeepSpeedBackend(module, ranks, device, options)
            return zero


def choose(name: str, ranks: int) -> str:
    """The backend for so many ranks. Raises ConfigError for a name that is none, and `single` with several ranks."""
    if name not in BACKENDS:
        raise ConfigError(f"trainer.backend {name!r} is not one of {', '.join(BACKENDS)}")
    if name == "single" and ranks > 1:
        raise ConfigError(f"trainer.backend 'single' has one rank, trainer.ranks is {ranks}: take 'auto' or 'fsdp2'")
    if name != "auto":
        return name
    return "single" if ranks == 1 else "fsdp2"
