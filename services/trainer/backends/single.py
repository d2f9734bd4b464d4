"""One device: the model whole, the optimizer on float32 master weights."""

from torch import Tensor

from headrace.services.trainer.backends.compilation import compile_layers
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.torch_backend import TorchBackend
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule
from headrace.services.trainer.model.optimizers import OptimizerOptions


class SingleDevice(TorchBackend):
    """Implements `headrace.services.trainer.backends.backend.Backend` without shards, for one rank."""

    def __init__(
        self,
        module: TrainedModule,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        options: BackendOptions | None = None,
    ) -> None:
        """`options`, if given, replace AdamW's `betas`, `eps` and `weight_decay`."""
        made = OptimizerOptions(betas=betas, eps=eps, weight_decay=weight_decay)
        options = options if options is not None else BackendOptions(optimizer=made)
        if options.compiled:
            compile_layers(module)
        super().__init__(module, Ranks.alone(), module.device, options.optimizer)

    def whole_state(self) -> dict[str, Tensor]:
        """Returns the module's own state dict, with adapters merged."""
        return self.module.whole_state()
