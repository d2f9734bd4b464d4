"""Models whose weights are still in their files: shapes now, and each rank's own rows once a backend has sharded them.

A model is made on the meta device by transformers' own `from_pretrained`, which handles names, ties, weights that the
checkpoint lacks, and buffers that no checkpoint holds. Only the reading is replaced. A tensor that the checkpoint has
as it is in memory is read by rows later; what transformers converts (the experts of a layer) is read and converted
whole, one conversion at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import PreTrainedModel

from headrace.services.trainer.model.tensor_files import stored_tensors
from headrace.services.trainer.model.weight_sources import (
    CheckpointFiles,
    Turn,
    UndeferrableError,
    WeightSource,
    WholeModel,
    on_meta,
    place,
)
from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from transformers.modeling_utils import LoadStateDictConfig
    from transformers.utils.loading_report import LoadStateDictInfo

_LOADER = "_load_pretrained_model"
_ADAPTED = ".base_layer."
"""Infix that an adapter adds to the name of the weight beside it."""


class Deferred:
    """Where the weights of one transformers model on the meta device are read from."""

    def __init__(self, source: WeightSource, names: frozenset[str]) -> None:
        """`names`: all that `source` can read, by their names in the model before adapters are added."""
        self._source = source
        self._names = names

    def fill(self, root: nn.Module, model: nn.Module, *, device: torch.device) -> None:
        """Allocates each weight that is on the meta device on `device` and reads its values: of a shard, its own rows.

        `root` holds `model`; both may be sharded by now, and adapters may lie beside the weights. Every rank calls it.
        """
        read_as, tied = self._read_as(model), list(_aliases(model).values())
        # Not `to_empty`, which would replace the buffers, too.
        root._apply(  # type: ignore[no-untyped-call]
            lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor
        )
        for first, *others in tied:
            for name in others:
                place(model, name, model.get_parameter(first))
        self._source.fill({known: model.get_parameter(name).detach() for name, known in read_as.items()})

    def put(self, model: nn.Module, name: str) -> None:
        """Loads one weight now, whole and on the CPU, unless it is loaded already; for callers that change it."""
        if not model.get_parameter(name).is_meta:
            return
        whole = torch.empty_like(model.get_parameter(name), device="cpu")
        self._source.fill({self._read_as(model)[name]: whole})
        place(model, name, nn.Parameter(whole))

    @contextmanager
    def present(self, model: nn.Module, layers: Iterable[nn.Module], *, device: torch.device) -> Iterator[None]:
        """Within it the model's forward pass works on `device`: a layer's weights are loaded while it computes.

        All weights outside of `layers` stay loaded throughout. Buffers must be on `device`.
        """
        known = {model.get_parameter(name): other for name, other in self._read_as(model).items()}
        units = {id(layer): layer for layer in layers}
        inside = {id(part) for layer in units.values() for part in layer.modules()}
        lent: dict[int, list[tuple[nn.Module, str, nn.Parameter]]] = {}

        def lend(unit: nn.Module, _inputs: object = None) -> None:
            owners = unit.modules() if id(unit) in units else (m for m in model.modules() if id(m) not in inside)
            lent[id(unit)] = self._lend(owners, known, device)

        def take_back(unit: nn.Module, _inputs: object = None, _output: object = None) -> None:
            for owner, key, parameter in lent.pop(id(unit), ()):
                owner._parameters[key] = parameter

        handles = [layer.register_forward_pre_hook(lend) for layer in units.values()]
        handles += [layer.register_forward_hook(take_back, always_call=True) for layer in units.values()]
        lend(model)
        try:
            yield
        finally:
            take_back(model)
            for handle in handles:
                handle.remove()

    def _lend(
        self, owners: Iterable[nn.Module], known: Mapping[nn.Parameter, str], device: torch.device
    ) -> list[tuple[nn.Module, str, nn.Parameter]]:
        """Replaces weights on the meta device by loaded ones; returns what they replaced."""
        slots = [
            (owner, key, parameter)
            for owner in owners
            for key, parameter in owner._parameters.items()
            if parameter is not None and parameter.is_meta
        ]
        values = {parameter: torch.empty_like(parameter, device=device) for _, _, parameter in slots}
        self._source.fill({known[parameter]: value.detach() for parameter, value in values.items()})
        for owner, key, parameter in slots:
            owner._parameters[key] = nn.Parameter(values[parameter].detach(), requires_grad=False)
        return slots

    def _read_as(self, model: nn.Module) -> dict[str, str]:
        """Each weight on the meta device (tied ones once) -> the name by which the source knows it."""
        found: dict[str, str] = {}
        for parameter, names in _aliases(model).items():
            if not parameter.is_meta:
                continue
            plain = [name.replace(_ADAPTED, ".") for name in names]
            known = next((name for name in plain if name in self._names), None)
            if known is None:
                raise UndeferrableError(f"{names[0]} is in none of its files, and has no values")
            found[names[0]] = known
        return found


@contextmanager
def stand_ins(model: nn.Module) -> Iterator[None]:
    """Within it weights on the meta device look as if they were on the CPU, and read as zeros, without memory.

    For code that adds modules beside them, on the same device.
    """
    slots = [
        (owner, key, parameter)
        for owner in model.modules()
        for key, parameter in owner._parameters.items()
        if parameter is not None and parameter.is_meta
    ]
    for owner, key, parameter in slots:
        zeros = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
        owner._parameters[key] = nn.Parameter(zeros, requires_grad=parameter.requires_grad)
    try:
        yield
    finally:
        for owner, key, parameter in slots:
            made = owner._parameters[key]
            assert made is not None
            parameter.requires_grad_(made.requires_grad)
            owner._parameters[key] = parameter


def load_deferred(load: Callable[[], PreTrainedModel]) -> tuple[PreTrainedModel, Deferred]:
    """What `load` (a call of `from_pretrained` in float32, by safetensors) returns, its weights still in the files.

    What the checkpoint lacks and all buffers are there, on the CPU. Raises UndeferrableError for a checkpoint that
    must be read whole, and what `load` raises.
    """
    made: list[CheckpointFiles] = []

    def note(
        model: PreTrainedModel,
        state_dict: Mapping[str, Tensor] | None,
        files: Sequence[str] | None,
        config: "LoadStateDictConfig",
        expected_keys: object = None,
    ) -> tuple["LoadStateDictInfo", None]:
        info, source = _note(model, state_dict, files, config)
        made.append(source)
        return info, None

    own = PreTrainedModel.__dict__.get(_LOADER)
    if own is None:
        raise UndeferrableError(f"this transformers has no {_LOADER}, and loads in a way that is not known here")
    setattr(PreTrainedModel, _LOADER, staticmethod(note))
    try:
        model = load()
    finally:
        setattr(PreTrainedModel, _LOADER, own)
    if len(made) != 1:
        raise UndeferrableError(f"this transformers called {_LOADER} {len(made)} times")
    source = made[0]
    for name, buffer in list(model.named_buffers()):
        if buffer.is_meta:
            real = torch.empty_like(buffer, device="cpu")
            source.fill({name: real})
            place(model, name, real)
    _tie(model, source)
    deferred = Deferred(source, source.names)
    deferred._read_as(model)
    return model, deferred


def load_in_turn(
    load: Callable[[], PreTrainedModel], turn: Turn, look: Callable[[PreTrainedModel], None]
) -> tuple[PreTrainedModel, Deferred]:
    """As `load_deferred`, for every checkpoint that `load` can load: whole models are in memory one rank at a time.

    `look` is called with the whole model. Every rank must call this, and enter `turn` equally often.
    """
    source = WholeModel(load, turn)
    with turn():
        model = load()
        look(model)
        for parameter, (first, *others) in _aliases(model).items():
            place(model, first, nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad))
            for name in others:
                place(model, name, model.get_parameter(first))
    names = frozenset(name for name, _ in model.named_parameters(remove_duplicate=False))
    return model, Deferred(source, names)


def _note(
    model: PreTrainedModel,
    state_dict: Mapping[str, Tensor] | None,
    files: Sequence[str] | None,
    config: "LoadStateDictConfig",
) -> tuple["LoadStateDictInfo", CheckpointFiles]:
    """Replaces transformers' reading: assigns shapes to the model, and records what the values are read from."""
    paths = [Path(each) for each in files or ()]
    if state_dict is not None or not paths or any(path.suffix != ".safetensors" for path in paths):
        raise UndeferrableError("its weights are not in safetensors files")
    if config.hf_quantizer is not None:
        raise UndeferrableError("its checkpoint is quantized")
    try:
        stored = stored_tensors(paths)
    except ConfigError as error:
        raise UndeferrableError(str(error)) from error
    source = CheckpointFiles(deepcopy(model), stored, config)
    before = set(model.state_dict())
    shapes = {name: on_meta(each) for name, each in stored.items()}
    info, _ = convert_and_load_state_dict_in_model(model, shapes, replace(config, device_map={"": "meta"}), None)
    if info.conversion_errors:
        raise UndeferrableError(f"{next(iter(info.conversion_errors))} cannot be converted without its values")
    odd = {name for name, *_ in info.mismatched_keys}
    source.assign(before - info.missing_keys - odd)
    _load_small(model, source)
    return info, source


def _load_small(model: PreTrainedModel, source: CheckpointFiles) -> None:
    """Loads vectors at once. They take next to no memory, and some families draw numbers of their size and device when
    they initialize: this way the random generator's state after the load equals that after a whole load.
    """
    for name, parameter in list(model.named_parameters()):
        if parameter.is_meta and parameter.ndim < 2 and name in source.names:
            made = nn.Parameter(torch.empty_like(parameter, device="cpu"), requires_grad=parameter.requires_grad)
            source.fill({name: made.detach()})
            made._is_hf_initialized = True  # type: ignore[attr-defined]
            place(model, name, made)


def _tie(model: PreTrainedModel, source: CheckpointFiles) -> None:
    """Ties weights that the checkpoint stores twice with equal values, as transformers does once it has the values."""
    for target, origin in list(model.all_tied_weights_keys.items()):
        first, second = model.get_parameter(target), model.get_parameter(origin)
        if first is second or not (first.is_meta and second.is_meta):
            continue
        if source.equal(target, origin, second.dtype):
            place(model, target, second)
        else:
            model.all_tied_weights_keys.pop(target)


def _aliases(model: nn.Module) -> dict[nn.Parameter, list[str]]:
    """Returns every parameter with all of its names."""
    found: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(parameter, []).append(name)
    return found
