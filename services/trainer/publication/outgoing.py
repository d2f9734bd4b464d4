"""A backend's weights as they are published: converted to the checkpoint's names and shapes, group by group."""

from collections.abc import Iterator
from functools import partial

import torch

from headrace.services.trainer.backends.backend import Backend
from headrace.wire.weights import WeightGroup


def weight_groups(backend: Backend, dtype: torch.dtype) -> Iterator[WeightGroup]:
    """Yields all that is published, in `dtype` or a dtype of its own. Every rank must consume all of it."""
    layout = backend.module.layout
    for group in layout.groups:
        yield WeightGroup(
            sources=backend.tensors(group.sources),
            published=group.published,
            dtype=group.dtype or dtype,
            convert=partial(layout.convert, group),
            block=group.block,
        )
