"""The wait for the next batch of an RL run."""

import time
from collections.abc import Callable
from typing import Protocol

from services.trainer.book import Book
from services.trainer.ledger import ReadyGroup
from services.trainer.reporter import Reporter
from services.trainer.runtime import Runtime
from wire.errors import WaitTimeoutError

_LOOK_S = 0.2


class Doing(Protocol):
    """Tells what is waited for, and for how many more seconds at most."""

    def __call__(self, what: str, left_s: float | None = None) -> None:
        """Nothing is: an empty `what`."""
        ...


def wait_for_batch(
    step: int,
    book: Book,
    runtime: Runtime,
    reporter: Reporter,
    *,
    limit_s: float,
    given_up: Callable[[], bool],
    meanwhile: Callable[[], None],
    doing: Doing,
) -> tuple[ReadyGroup, ...] | None:
    """The next batch; None if `given_up()` turned true. Raises WaitTimeoutError with a diagnosis.

    While no replica lives (somebody scaled to 0), or the run is paused, nothing can arrive: that does not count.
    A group that dynamic sampling discards is progress; how many there may be has a bound of its own. `meanwhile` is
    called at each look.
    """
    left = limit_s
    looked, discarded = time.monotonic(), 0
    while not given_up():
        book.arrived.clear()
        batch, dropped = book.next_batch()
        if dropped:
            runtime.ack([group.group_index for group in dropped])
            reporter.wake()
            continue
        if batch is not None:
            reporter.awaited = ()
            doing("")
            return batch
        runtime.check()
        meanwhile()
        now, hindrance = time.monotonic(), reporter.hindrance
        left -= 0.0 if hindrance else now - looked
        looked = now
        if book.discarded > discarded:
            left, discarded = limit_s, book.discarded
        if left < 0:
            raise WaitTimeoutError(f"a batch for step {step}: {book.diagnosis()}{_where(reporter)}", limit_s)
        said, reporter.awaited = book.missing()
        doing(f"a batch for step {step}{hindrance or said + _where(reporter)}", None if hindrance else left)
        book.arrived.wait(_LOOK_S)
    return None


def _where(reporter: Reporter) -> str:
    """Of the first group that is awaited now: a word on the one before it would name the wrong place."""
    place = next((reporter.places[index] for index in reporter.awaited[:1] if index in reporter.places), "")
    return f" ({place})" if place else ""
