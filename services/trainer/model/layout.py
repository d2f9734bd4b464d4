"""Names and shapes of a model's tensors as they are published: those of its checkpoint, not those in memory.

transformers holds some families otherwise than their checkpoints do (the experts of a layer are one tensor) and
converts names and tensors when it loads and saves. Engines know the checkpoint's. So everything is published through
the reverse of that conversion, one *conversion group* at a time: the tensors in memory whose published tensors depend
on each other. Part of a group would convert without an error into shorter tensors, so a group is never cut.

Groups, names and shapes come from shapes alone (a copy of the model without memory), so they are the same on every
rank, however its weights are sharded.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import initialization
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import PreTrainedModel, remove_tied_weights_from_state_dict

from headrace.wire.errors import ConfigError

_ATTENTION = re.compile(r"^(?P<block>.*\.\d+\.[^.]*att(?:n|ention)[^.]*)\.")


@dataclass(frozen=True, slots=True)
class ConversionGroup:
    """Tensors in memory and the tensors that they are published as, by one conversion."""

    sources: tuple[str, ...]
    """Names of parameters and buffers in memory."""
    published: tuple[tuple[str, tuple[int, ...]], ...]
    """Names and shapes in the checkpoint."""
    converts: bool = False
    """The tensors change, not only their names."""
    dtype: torch.dtype | None = None
    """Dtype in which it travels, if not the common one: whole numbers, and what the model keeps in float32 always."""
    block: str = ""
    """A layer's attention. Engines fuse some of its tensors only if one call carries them all: no bucket splits it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Every tensor that is published, in the model's order; what has a dtype of its own comes last."""

    groups: tuple[ConversionGroup, ...]
    tied: frozenset[str] = frozenset()
    """Published names that are tied to another tensor: never sent."""
    unread: tuple[re.Pattern[str], ...] = ()
    """Names in a checkpoint that the model's class does not read."""
    _skeleton: PreTrainedModel | None = field(default=None, repr=False, compare=False)

    @property
    def names(self) -> frozenset[str]:
        """All that is published."""
        return frozenset(name for group in self.groups for name, _ in group.published)

    def convert(self, group: ConversionGroup, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Converts whole tensors, in the order of the group's sources, to its published tensors, in its order."""
        if not group.converts:
            return list(tensors)
        made = _revert(self._skeleton, dict(zip(group.sources, tensors, strict=True)))
        return [made[name] for name, _ in group.published]


def plain_layout(named: Iterable[tuple[str, Tensor]]) -> Layout:
    """Returns the layout of tensors that travel unchanged, under their own names."""
    return Layout(tuple(ConversionGroup((name,), ((name, tuple(each.shape)),)) for name, each in named))


def model_layout(model: PreTrainedModel) -> Layout:
    """Returns the layout of a transformers model, wherever its weights are by now.

    Raises ConfigError if a tensor would reach no published one, or be published in part.
    """
    skeleton = _skeleton(model)
    state = skeleton.state_dict()
    for name in skeleton._keys_to_ignore_on_save or ():
        state.pop(name, None)
    kept = remove_tied_weights_from_state_dict(dict(state), skeleton)
    groups = [_checked(group, skeleton, kept) for group in _groups(skeleton, kept)]
    own = own_dtypes(skeleton)
    made = [_finished(group, next((own[name] for name in group.sources if name in own), None)) for group in groups]
    ties = {name: tensor for name, tensor in state.items() if name not in kept}
    return Layout(
        groups=tuple(sorted(made, key=lambda group: str(group.dtype or ""))),
        tied=frozenset(_revert(skeleton, ties)) | frozenset(ties),
        unread=_unread(skeleton),
        _skeleton=skeleton,
    )


def own_dtypes(model: PreTrainedModel) -> dict[str, torch.dtype]:
    """Tensors of a transformers model that keep their own dtype when the others are saved and published in another.

    Whole numbers, and what its class keeps in float32 beside a body in bfloat16 (the bias of a router, for example).
    """
    wide = [re.compile(pattern.replace("*", ".*")) for pattern in model._get_dtype_plan(torch.bfloat16)]
    found: dict[str, torch.dtype] = {}
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            found[name] = tensor.dtype
        elif any(pattern.search(name) for pattern in wide):
            found[name] = torch.float32
    return found


def _skeleton(model: PreTrainedModel) -> PreTrainedModel:
    """Builds the model from its config without memory, and so without changes made by shards or adapters."""
    with torch.device("meta"), initialization.meta_device_safe_creation_ops(), initialization.no_init_weights():
        made = type(model)(model.config)
    made.tie_weights()
    if (found := getattr(model, "_weight_conversions", None)) is not None:
        made._weight_conversions = found
    return made


def _revert(skeleton: PreTrainedModel, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    made: dict[str, Tensor] = revert_weight_conversion(skeleton, tensors)
    return made


class _Origins(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows tensors through the operations on them, and records which of the first tensors each is made of."""

    def __init__(self, named: dict[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._found = {id(tensor): (tensor, frozenset([name])) for name, tensor in named.items()}

    def of(self, tensor: Tensor) -> frozenset[str]:
        """Names of the first tensors that a tensor is made of; empty if there are none."""
        return self._found[id(tensor)][1] if id(tensor) in self._found else frozenset()

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        made = func(*args, **(kwargs or {}))
        read = (self.of(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor))
        origins = frozenset[str]().union(*read)
        for each in tree_leaves(made):
            if isinstance(each, Tensor):
                # Kept alive: the id of a freed tensor could be reused.
                self._found[id(each)] = (each, origins)
        return made


def _groups(skeleton: PreTrainedModel, kept: dict[str, Tensor]) -> Iterator[ConversionGroup]:
    """Returns the groups, in the order of each group's first tensor."""
    state = {name: torch.empty_like(tensor, device="meta") for name, tensor in kept.items()}
    with _Origins(state) as origins:
        published = _revert(skeleton, state)
    makes: dict[str, set[str]] = {name: set() for name in state}
    for name, tensor in published.items():
        for source in origins.of(tensor):
            makes[source].add(name)
    lost = [name for name, made in makes.items() if not made]
    if lost:
        raise ConfigError(f"model.path: {some(lost)} would not be published: transformers saves them under no name")
    places = {name: number for number, name in enumerate(state)}
    order = {name: number for number, name in enumerate(published)}
    done: set[str] = set()
    for first in state:
        if first in done:
            continue
        sources, names = {first}, set[str]()
        while more := set().union(*(makes[source] for source in sources)) - names:
            names |= more
            sources |= {source for name in more for source in origins.of(published[name])}
        done |= sources
        yield ConversionGroup(
            tuple(sorted(sources, key=places.__getitem__)),
            tuple((name, tuple(published[name].shape)) for name in sorted(names, key=order.__getitem__)),
            converts=len(sources) > 1 or len(names) > 1 or published[next(iter(names))] is not state[first],
        )


def _checked(group: ConversionGroup, skeleton: PreTrainedModel, kept: dict[str, Tensor]) -> ConversionGroup:
    """Checks that a group converts alone as it does among all others, and yields every element once."""
    tensors = {name: kept[name] for name in group.sources}
    before = sum(tensor.numel() for tensor in tensors.values())
    after = sum(torch.Size(shape).numel() for _, shape in group.published)
    if before != after:
        raise ConfigError(f"model.path: {some(group.sources)} hold {before} values, {after} would be published")
    if group.converts:
        alone = [(name, tuple(tensor.shape)) for name, tensor in _revert(skeleton, tensors).items()]
        if sorted(alone) != sorted(group.published):
            raise ConfigError(f"model.path: {some(group.sources)} cannot be converted for a publication by themselves")
    return group


def _finished(group: ConversionGroup, dtype: torch.dtype | None) -> ConversionGroup:
    match = _ATTENTION.match(group.published[0][0])
    return replace(group, dtype=dtype, block="" if match is None else match["block"])


def _unread(skeleton: PreTrainedModel) -> tuple[re.Pattern[str], ...]:
    """Names that transformers does not read when it loads: buffers of old checkpoints are not weights either."""
    patterns = set(skeleton._keys_to_ignore_on_load_unexpected or ())
    buffers = [name for name, _ in skeleton.named_buffers()]
    if any(name.endswith("rotary_emb.inv_freq") for name in buffers):
        patterns.add(r"rotary_emb\.inv_freq")
    if any(name.endswith("position_ids") for name in buffers):
        patterns.add(r"(^|\.)position_ids$")
    return tuple(re.compile(pattern) for pattern in sorted(patterns))


def some(names: Sequence[str], most: int = 5) -> str:
    """Joins the first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
