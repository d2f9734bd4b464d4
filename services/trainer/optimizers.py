"""The optimizers by name. The learning rate is set before each step; it is 0 here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from services.trainer.model import TrainedModule

OPTIMIZERS = ("adamw", "adamw_8bit", "muon")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerOptions:
    """What an optimizer may be told."""

    name: str = "adamw"
    """Of `OPTIMIZERS`."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and the second moment."""
    eps: float = 1e-8
    """AdamW's guard against a division by zero."""
    weight_decay: float = 0.0
    """Of matrices only: norms and biases are not decayed."""


def build_optimizers(module: TrainedModule, options: OptimizerOptions) -> list[Optimizer]:
    """The optimizers that together train every weight of `module` once."""
    weights = [weight for _, weight in module.named_weights()]
    match options.name:
        case "adamw":
            return [_adamw(weights, options)]
        case _:
            raise ValueError(f"optimizer {options.name!r} is not one of {', '.join(OPTIMIZERS)}")


def decay_groups(weights: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices are decayed, the rest is not."""
    listed = list(weights)
    matrices = [weight for weight in listed if weight.ndim > 1]
    others = [weight for weight in listed if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _adamw(weights: Iterable[nn.Parameter], options: OptimizerOptions) -> Optimizer:
    """Decoupled weight decay (arXiv:1711.05101)."""
    groups = decay_groups(weights, options.weight_decay)
    return torch.optim.AdamW(groups, lr=0.0, betas=options.betas, eps=options.eps, fused=True)
