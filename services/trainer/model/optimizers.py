"""The optimizers by name. The learning rate is set before each step; it is 0 here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from headrace.services.trainer.model.model import TrainedModule
from headrace.wire.config.nearest import unknown
from headrace.wire.errors import ConfigError

OPTIMIZERS = ("adamw", "adamw_8bit", "muon")
_MUON_EPS = 1e-7
_BLOCKWISE_ELEMENTS = 4096
"""Size from which bitsandbytes holds a weight's moments in 8 bits."""
_NO_MATRICES = ("bias", "norm", "a_log")
"""In the name of a weight, or of the module that it is the weight of."""
_MARKS = {"momentum_buffer": "muon", "state1": "adamw_8bit", "exp_avg": "adamw"}
"""Key of a state that only this optimizer makes; Muon's comes beside AdamW's, so it is looked for first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerOptions:
    """Options of an optimizer."""

    name: str = "adamw"
    """One of `OPTIMIZERS`."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and the second moment."""
    eps: float = 1e-8
    """AdamW's epsilon, against division by zero."""
    weight_decay: float = 0.0
    """Weight decay of matrices only: norms, biases and state matrices are not decayed."""


def build_optimizers(module: TrainedModule, options: OptimizerOptions) -> list[Optimizer]:
    """Returns optimizers that together train every weight of `module` once. Raises ConfigError for unusable options."""
    weights = {name: weight for name, weight in module.named_weights() if weight.requires_grad}
    match options.name:
        case "adamw":
            return [_adamw(weights, options)]
        case "adamw_8bit":
            return [_adamw_8bit(weights, options)]
        case "muon":
            matrices = _hidden_matrices(module)
            inner = {name: weight for name, weight in weights.items() if weight in matrices and is_matrix(name, weight)}
            rest = {name: weight for name, weight in weights.items() if name not in inner}
            # Adapters leave one of them without a weight, which no optimizer takes.
            by_muon = [_muon(list(inner.values()), options)] if inner else []
            return [*by_muon, _adamw(rest, options)] if rest else by_muon
        case _:
            raise ConfigError(f"trainer.optimizer {unknown(options.name, OPTIMIZERS)}")


def state_keys(optimizer: Optimizer, weight: Tensor) -> set[str]:
    """Keys of the state that `optimizer` (one of `build_optimizers`) holds for `weight` once it has stepped."""
    match optimizer:
        case torch.optim.Muon():
            return {"momentum_buffer"}
        case torch.optim.AdamW():
            return {"step", "exp_avg", "exp_avg_sq"}
        case _:
            scales = {"qmap1", "qmap2", "absmax1", "absmax2"} if weight.numel() >= _BLOCKWISE_ELEMENTS else set()
            return {"step", "state1", "state2"} | scales


def kind_of(keys: Iterable[str]) -> str:
    """The name in `OPTIMIZERS` of the optimizer whose state has these keys; the keys themselves if there is none."""
    found = set(keys)
    return next((name for mark, name in _MARKS.items() if mark in found), "unknown: " + ", ".join(sorted(found)))


def is_matrix(name: str, weight: Tensor) -> bool:
    """Whether it multiplies: only such weights are decayed. Biases of experts, state matrices of Mamba and norms of
    single heads have two dimensions too.
    """
    own = ".".join(name.split(".")[-2:]).lower()
    return weight.ndim > 1 and not any(part in own for part in _NO_MATRICES)


def decay_groups(weights: Mapping[str, nn.Parameter], weight_decay: float) -> list[dict[str, object]]:
    """Parameter groups: matrices are decayed, the rest is not."""
    matrices = [weight for name, weight in weights.items() if is_matrix(name, weight)]
    others = [weight for name, weight in weights.items() if not is_matrix(name, weight)]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _adamw(weights: Mapping[str, nn.Parameter], options: OptimizerOptions) -> Optimizer:
    """Decoupled weight decay (arXiv:1711.05101)."""
    groups = decay_groups(weights, options.weight_decay)
    return torch.optim.AdamW(groups, lr=0.0, betas=options.betas, eps=options.eps, fused=True)


def _adamw_8bit(weights: Mapping[str, nn.Parameter], options: OptimizerOptions) -> Optimizer:
    """AdamW whose moments are held in 8 bits, in blocks with a scale each (arXiv:2110.02861), through bitsandbytes.

    Moments of fewer than `_BLOCKWISE_ELEMENTS` elements stay in float32.
    """
    if any(isinstance(weight, DTensor) for weight in weights.values()):
        raise ConfigError(
            "trainer.optimizer 'adamw_8bit': its blocks cannot be split over ranks: set trainer.backend = 'single' "
            "(and trainer.ranks = 1), or trainer.optimizer = 'adamw'"
        )
    try:
        import bitsandbytes
    except ModuleNotFoundError as error:
        raise ConfigError(
            "trainer.optimizer 'adamw_8bit' needs the extra `qlora`: pip install 'headrace[qlora]'; or take 'adamw'"
        ) from error
    groups = decay_groups(weights, options.weight_decay)
    made: Optimizer = bitsandbytes.optim.AdamW8bit(groups, lr=0.0, betas=options.betas, eps=options.eps)
    return made


def _muon(matrices: list[nn.Parameter], options: OptimizerOptions) -> Optimizer:
    """Orthogonalized momentum (Jordan et al., 2024), scaled like AdamW's steps (arXiv:2502.16982).

    The same learning rate therefore suits both.
    """
    return torch.optim.Muon(
        matrices, lr=0.0, weight_decay=options.weight_decay, eps=_MUON_EPS, adjust_lr_fn="match_rms_adamw"
    )


def _hidden_matrices(module: TrainedModule) -> set[nn.Parameter]:
    """Matrices that Muon suits: those inside the layers, not embedding and head, whose rows are tokens."""
    return {weight for layer in module.layers() for weight in layer.parameters() if weight.ndim == 2}
