"""Converts weights and optimizer state between a checkpoint's whole tensors and the backend's own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.optim import Optimizer

from headrace.services.trainer.model.model import TrainedModule
from headrace.services.trainer.model.optimizers import kind_of, state_keys
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.backend")


def find_tensors(module: TrainedModule, weights: Mapping[str, Tensor], names: Sequence[str]) -> list[Tensor]:
    """Returns weights from `weights`, and buffers from the model; raises ValueError for a name found in neither."""
    found: list[Tensor] = []
    for name in names:
        tensor = weights[name] if name in weights else _buffer(module.model, name)
        if tensor is None:
            raise ValueError(f"the model has no tensor {name}")
        found.append(tensor)
    return found


def _buffer(model: nn.Module, name: str) -> Tensor | None:
    owner, _, last = name.rpartition(".")
    try:
        return model.get_submodule(owner)._buffers.get(last)
    except AttributeError:
        return None


def check_weights(named: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Raises ValueError unless `weights` have the names and shapes of `named`."""
    shapes = {name: weight.shape for name, weight in named.items()}
    if shapes != {name: weight.shape for name, weight in weights.items()}:
        odd = sorted(shapes.keys() ^ weights.keys()) or [n for n in shapes if shapes[n] != weights[n].shape]
        raise ValueError(f"the weights are not those of this model: {', '.join(odd[:3])}")


def set_weights(named: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor], *, share: float = 1.0) -> None:
    """Copies whole tensors into the model; into a sharded one, each rank its own part.

    `share` below 1 moves the model only so far to them: (1 - share) w + share w'.
    """
    with torch.no_grad():
        for name, weight in named.items():
            part = shard_like(weights[name].to(weight.dtype), weight)
            weight.copy_(part if share == 1 else weight * (1 - share) + part * share)


def shard_like(whole: Tensor, example: Tensor) -> Tensor:
    """Returns this rank's part of `whole`, laid out like `example`; no communication."""
    whole = whole.to(example.device)
    if not isinstance(example, DTensor):
        return whole
    return distribute_tensor(whole, example.device_mesh, example.placements, src_data_rank=None)


def own_rows(named: Iterable[tuple[str, Tensor]], rank: int) -> Iterator[tuple[str, Tensor]]:
    """Yields what this rank has of tensors that are sharded by rows; a tensor that is not sharded is rank 0's."""
    for name, tensor in named:
        if not isinstance(tensor, DTensor):
            if rank == 0:
                yield name, tensor
            continue
        assert tensor.placements == (Shard(0),), f"{name} is not sharded by rows: {tensor.placements}"
        rows = tensor.to_local()
        if len(rows) or rank == 0:
            yield name, rows


def optimizer_state(named: Mapping[str, nn.Parameter], optimizers: Sequence[Optimizer]) -> Iterator[tuple[str, Tensor]]:
    """Yields the optimizers' state tensors as `weight name/key`, sharded if the weights are."""
    for name, weight in named.items():
        for optimizer in optimizers:
            for key, value in sorted(optimizer.state.get(weight, {}).items()):
                yield f"{name}/{key}", value if isinstance(value, Tensor) else torch.tensor(value)


def load_state(
    named: Mapping[str, nn.Parameter],
    optimizers: Sequence[Optimizer],
    tensors: Mapping[str, Tensor],
    *,
    leads: bool = True,
) -> None:
    """Replaces the optimizers' state; raises ValueError for state of a weight that none of them trains.

    State that another kind of optimizer made is dropped as a whole, with a warning from the rank that `leads`.
    """
    owners = {weight: opt for opt in optimizers for group in opt.param_groups for weight in group["params"]}
    for optimizer in optimizers:
        optimizer.state.clear()
    parts = state_parts(named, tensors)
    for name in parts:
        if named[name] not in owners:
            raise ValueError(f"the checkpoint has moments of {name}, which model.trainable freezes: resume without it")
    expected = {name: state_keys(owners[named[name]], named[name]) for name in parts}
    if drop_foreign(parts, expected, leads=leads):
        return
    for name, keys in parts.items():
        weight = named[name]
        state = owners[weight].state[weight]
        for key in keys:
            tensor = tensors[f"{name}/{key}"]
            if tensor.ndim == 0 and not tensor.is_floating_point():
                state[key] = int(tensor)  # bitsandbytes counts in Python
            elif tensor.shape == weight.shape:
                state[key] = shard_like(tensor, weight).clone()
            else:
                state[key] = tensor.to(weight.device, copy=True)


def state_parts(named: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, set[str]]:
    """Weight name -> the keys of its saved state; raises ValueError for state of no weight in `named`."""
    parts: dict[str, set[str]] = {}
    for key in tensors:
        name, _, part = key.rpartition("/")
        if name not in named:
            raise ValueError(f"the optimizer's state is not of this model: {key}")
        parts.setdefault(name, set()).add(part)
    return parts


def drop_foreign(saved: Mapping[str, set[str]], expected: Mapping[str, set[str]], *, leads: bool) -> bool:
    """Whether the saved state belongs to another optimizer, and must be dropped; the rank that `leads` logs a warning.

    Both map weight names to the keys of their state. A step with foreign keys would fail long after its batch was
    taken.
    """
    if all(keys == expected[name] for name, keys in saved.items()):
        return False
    if leads:
        before, now = (kind_of(key for keys in side.values() for key in keys) for side in (saved, expected))
        log.warning("optimizer_state_dropped", saved=before, now=now, effect="the moments start at zero")
    return True
