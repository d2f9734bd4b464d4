"""Traces of a step: a trace of its own, and one span in the trace of each group that it trains."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.timing.phases import TRAIN, untimed
from headrace.wire import tracing
from headrace.wire.contracts import decode_header

_WAIT = {"wait": "wait for batch"}


def phase_span(name: str) -> AbstractContextManager[object]:
    """Opens a phase's span under the current one, by the process's clock; `training` opens the span of TRAIN."""
    return untimed(name) if name == TRAIN else tracing.span(_WAIT.get(name, name.replace("_", " ")))


@contextmanager
def training(step: int, batch: Sequence[ReadyGroup], whole: tracing.Span) -> Iterator[None]:
    """Traces the optimizer step.

    `whole` is the step's span: it links to the traces of its groups, and they link to it.
    """
    parents = [decode_header(group.data).traceparent for group in batch] if tracing.is_on() else []
    whole.link(parents)
    began = time.time_ns()
    with tracing.span("train", step=step, groups=len(batch)):
        yield
    for parent, group in zip(parents, batch, strict=False):
        tracing.record("train", parent, began=began, links=(whole.traceparent,), step=step, group_id=group.group_id)
