"""A step in the traces: a trace of its own, and one span in the trace of each group that it trains."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from services.trainer.ledger import ReadyGroup
from services.trainer.phases import TRAIN, untimed
from wire import tracing
from wire.contracts import decode_header

_WAIT = {"wait": "wait for batch"}


def phase_span(name: str) -> AbstractContextManager[object]:
    """A phase's span, under the present one, by the process's clock; that of TRAIN is opened by `training`."""
    return untimed(name) if name == TRAIN else tracing.span(_WAIT.get(name, name.replace("_", " ")))


@contextmanager
def training(step: int, batch: Sequence[ReadyGroup], whole: tracing.Span) -> Iterator[None]:
    """Around the optimizer step. `whole` is the step's span: it points at the traces of its groups, and they at it."""
    parents = [decode_header(group.data).traceparent for group in batch] if tracing.is_on() else []
    whole.link(parents)
    began = time.time_ns()
    with tracing.span("train", step=step, groups=len(batch)):
        yield
    for parent, group in zip(parents, batch, strict=False):
        tracing.record("train", parent, began=began, links=(whole.traceparent,), step=step, group_id=group.group_id)
