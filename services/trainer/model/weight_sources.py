"""Where the weights of a model on the meta device come from: the files of its checkpoint, or a whole model in turn."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    convert_and_load_state_dict_in_model,
    dot_natural_key,
    rename_source_key,
)

from headrace.services.trainer.model.tensor_files import Stored, copy_rows, equal_in, read_whole

if TYPE_CHECKING:
    from transformers.modeling_utils import LoadStateDictConfig, PreTrainedModel

Turn = Callable[[], AbstractContextManager[None]]
"""Returns a context in which this rank is the only one of its machine."""


class UndeferrableError(Exception):
    """The checkpoint must be read whole; the message is the reason."""


class WeightSource(Protocol):
    """Where the weights of a model on the meta device come from."""

    def fill(self, named: Mapping[str, Tensor]) -> None:
        """Copies the named weights into tensors; into a DTensor, this rank's rows."""
        ...


@dataclass(frozen=True, slots=True)
class _Group:
    """Tensors of the checkpoint that transformers converts together, and what they become."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]


class CheckpointFiles:
    """Implements `WeightSource` from the files of a checkpoint."""

    def __init__(
        self, skeleton: "PreTrainedModel", stored: Mapping[str, Stored], config: "LoadStateDictConfig"
    ) -> None:
        """`skeleton`: the model without memory; `config`: transformers' `LoadStateDictConfig` of this load."""
        self._skeleton, self._stored, self._config = skeleton, stored, config
        self._plain: dict[str, Stored] = {}
        self._groups: list[_Group] = []

    def assign(self, loaded: Iterable[str]) -> None:
        """Maps the model's `loaded` names to tensors in the files. Raises UndeferrableError if that is ambiguous."""
        self._plain, parts = self._renamed()
        converted = {name for name in loaded if name not in self._plain}
        for sources in parts.values():
            made = self._convert({name: on_meta(self._stored[name]) for name in sources}, device="meta")
            self._groups.append(_Group(tuple(sources), tuple(made)))
        found = [name for group in self._groups for name in group.targets]
        if sorted(found) != sorted(converted):
            odd = sorted(converted.symmetric_difference(found)) or ["(one of them twice)"]
            raise UndeferrableError(f"its conversion in parts gives other tensors than at once: {', '.join(odd[:3])}")

    @property
    def names(self) -> frozenset[str]:
        """All names that can be read."""
        return frozenset(self._plain).union(*(group.targets for group in self._groups))

    def fill(self, named: Mapping[str, Tensor]) -> None:
        """Reads plain tensors by rows, and runs each conversion that a requested name needs on whole tensors."""
        for name, tensor in named.items():
            if name in self._plain:
                local, start = _own_rows(tensor)
                copy_rows(self._plain[name], local, start)
        for group in self._groups:
            wanted = [name for name in group.targets if name in named]
            if not wanted:
                continue
            made = self._convert({name: read_whole(self._stored[name]) for name in group.sources}, device="cpu")
            for name in wanted:
                _copy_own(made[name], named[name])

    def equal(self, first: str, second: str, dtype: torch.dtype) -> bool:
        """Whether two tensors are the same, in `dtype`. Raises UndeferrableError for one that is converted."""
        if first not in self._plain or second not in self._plain:
            raise UndeferrableError(f"{first} and {second} are tied, both in the checkpoint, and one is converted")
        return equal_in(self._plain[first], self._plain[second], dtype)

    def _renamed(self) -> tuple[dict[str, Stored], dict[str, list[str]]]:
        """Returns what is read as it is, by its name in memory; and for each conversion its names in the checkpoint.

        Follows transformers' loader through the names, on a copy of its transformations, because they keep state.
        """
        mapping = deepcopy(self._config.weight_mapping or [])
        renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
        state, prefix = self._skeleton.state_dict(), self._skeleton.base_model_prefix
        plain: dict[str, Stored] = {}
        parts: dict[str, list[str]] = {}
        for name in sorted(self._stored, key=dot_natural_key):
            found, pattern = rename_source_key(name, renamings, converters, prefix, state)
            if found not in state and name in state:
                found, pattern = rename_source_key(name, [], [], base_model_prefix=prefix, meta_state_dict=state)
            if found not in state:
                continue
            if pattern is not None:
                parts.setdefault(found, []).append(name)
            elif found not in parts:
                plain.setdefault(found, self._stored[name])
        return plain, parts

    def _convert(self, tensors: dict[str, Tensor], *, device: str) -> dict[str, Tensor]:
        """Runs one conversion as `from_pretrained` does, in the dtypes of the model."""
        meta = self._skeleton.state_dict(keep_vars=True)
        config = replace(self._config, device_map={"": device})
        info, _ = convert_and_load_state_dict_in_model(self._skeleton, tensors, config, None)
        if info.conversion_errors or info.mismatched_keys:
            raise UndeferrableError(f"{', '.join(list(tensors)[:3])} cannot be converted by themselves")
        made: dict[str, Tensor] = {}
        for name in meta.keys() - info.missing_keys:
            made[name] = self._skeleton.get_parameter_or_buffer(name).detach()
            place(self._skeleton, name, meta[name])
        return made


class WholeModel:
    """Implements `WeightSource` for what cannot be read in parts: `fill` loads the whole model once more, and drops it.

    All ranks call it and take turns, so that a machine holds one whole model at a time.
    """

    def __init__(self, load: Callable[[], "PreTrainedModel"], turn: Turn) -> None:
        """Create it before the first load: each load draws missing weights from the random state of now."""
        self._load, self._turn = load, turn
        self._random = torch.get_rng_state()

    def fill(self, named: Mapping[str, Tensor]) -> None:
        """Loads the whole model in this rank's turn and copies from it."""
        with self._turn(), torch.random.fork_rng(devices=()):
            torch.set_rng_state(self._random)
            model = self._load()
            for name, tensor in named.items():
                _copy_own(model.get_parameter_or_buffer(name).detach(), tensor)


def on_meta(stored: Stored) -> Tensor:
    """Returns a tensor of its shape and dtype, without memory."""
    return torch.empty(stored.shape, dtype=stored.dtype, device="meta")


def place(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Sets the parameter or buffer `name`, replacing any value."""
    path, _, key = name.rpartition(".")
    owner = model.get_submodule(path)
    if key in owner._buffers:
        owner._buffers[key] = tensor
    else:
        assert isinstance(tensor, nn.Parameter)
        owner._parameters[key] = tensor


def _own_rows(tensor: Tensor) -> tuple[Tensor, int]:
    """Returns the local part of a tensor, and the row it begins with."""
    if not isinstance(tensor, DTensor):
        return tensor, 0
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    local = tensor.to_local()
    if tuple(local.shape) != tuple(shape) or any(offset[1:]) or tuple(shape[1:]) != tuple(tensor.shape[1:]):
        raise ValueError(f"a shard {tuple(local.shape)} of {tuple(tensor.shape)} holds parts of rows")
    return local, offset[0]


def _copy_own(whole: Tensor, tensor: Tensor) -> None:
    local, start = _own_rows(tensor)
    local.copy_(whole[start : start + len(local)] if isinstance(tensor, DTensor) else whole)
