"""A step in the traces: a trace of its own, and one span in the trace of each group that it trains."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from services.trainer.ledger import ReadyGroup
from wire import tracing
from wire.contracts import decode_header


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
