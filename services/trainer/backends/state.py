"""Weights and optimizer state between a checkpoint's whole tensors and whatever a backend holds of them."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer


def check_weights(named: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Raises ValueError unless `weights` have the names and shapes of `named`."""
    shapes = {name: weight.shape for name, weight in named.items()}
    if shapes != {name: weight.shape for name, weight in weights.items()}:
        odd = sorted(shapes.keys() ^ weights.keys()) or [n for n in shapes if shapes[n] != weights[n].shape]
        raise ValueError(f"the weights are not those of this model: {', '.join(odd[:3])}")


def set_weights(named: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor]) -> None:
    """Copies whole tensors into the model's own; of a sharded one each rank takes its part."""
    with torch.no_grad():
        for name, weight in named.items():
            weight.copy_(shard_like(weights[name].to(weight.dtype), weight))


def shard_like(whole: Tensor, example: Tensor) -> Tensor:
    """The part of `whole` that is this rank's, laid out as `example` is; no communication."""
    whole = whole.to(example.device)
    if not isinstance(example, DTensor):
        return whole
    return distribute_tensor(whole, example.device_mesh, example.placements, src_data_rank=None)


def optimizer_state(named: Mapping[str, nn.Parameter], optimizers: Sequence[Optimizer]) -> Iterator[tuple[str, Tensor]]:
    """All tensors of the optimizers' state by `weight name/key`, as they are (shards, if the weights are)."""
    for name, weight in named.items():
        for optimizer in optimizers:
            for key, value in sorted(optimizer.state.get(weight, {}).items()):
                yield f"{name}/{key}", value if isinstance(value, Tensor) else torch.tensor(value)


def load_state(
    named: Mapping[str, nn.Parameter], optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]
) -> None:
    """Replaces the optimizers' state; raises ValueError for state of a weight that none of them trains."""
    owners = {weight: opt for opt in optimizers for group in opt.param_groups for weight in group["params"]}
    for optimizer in optimizers:
        optimizer.state.clear()
    for key, tensor in tensors.items():
        name, _, part = key.rpartition("/")
        weight = named.get(name)
        if weight is None or weight not in owners:
            raise ValueError(f"the optimizer's state is not of this model: {key}")
        state = owners[weight].state.setdefault(weight, {})
        if tensor.ndim == 0 and not tensor.is_floating_point():
            state[part] = int(tensor)  # bitsandbytes counts in Python
        elif tensor.shape == weight.shape:
            state[part] = shard_like(tensor, weight).clone()
        else:
            state[part] = tensor.to(weight.device, copy=True)
