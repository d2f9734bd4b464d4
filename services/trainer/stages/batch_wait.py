"""Waiting for the next batch of an RL run."""

import time
from collections.abc import Callable
from typing import Protocol

from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.runtime.runtime import Runtime
from headrace.wire.errors import WaitTimeoutError

_LOOK_S = 0.2


class WaitReport(Protocol):
    """Reports what is waited for, and for how many more seconds at most."""

    def __call__(self, what: str, left_s: float | None = None) -> None:
        """Reports the wait for `what`; an empty `what` ends it."""
        ...


def wait_for_batch(
    step: int,
    ledger: JournaledLedger,
    runtime: Runtime,
    reporter: Reporter,
    *,
    limit_s: float,
    given_up: Callable[[], bool],
    meanwhile: Callable[[], None],
    doing: WaitReport,
) -> tuple[ReadyGroup, ...] | None:
    """Returns the next batch; None if `given_up()` turned true. Raises WaitTimeoutError with a diagnosis.

    While there is no replica (scaled to 0), or the run is paused, no batch can arrive: that time does not count. A
    group discarded by dynamic sampling is progress; their number has a bound of its own. `meanwhile` is called at each
    look.
    """
    left = limit_s
    looked, discarded = time.monotonic(), 0
    while not given_up():
        ledger.arrived.clear()
        batch, dropped = ledger.next_batch()
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
        if ledger.discarded > discarded:
            left, discarded = limit_s, ledger.discarded
        if left < 0:
            where = _where(reporter, runtime.broker_trouble)
            raise WaitTimeoutError(f"a batch for step {step}: {ledger.diagnosis()}{where}", limit_s)
        said, reporter.awaited = ledger.missing()
        where = _where(reporter, runtime.broker_trouble)
        doing(f"a batch for step {step}{hindrance or said + where}", None if hindrance else left)
        ledger.arrived.wait(_LOOK_S)
    return None


def _where(reporter: Reporter, broker_trouble: str) -> str:
    """Where the group is that is awaited first, if known, or why none comes from there.

    The place of an earlier one would be the wrong place.
    """
    if troubles := [trouble for trouble in (broker_trouble, reporter.trouble) if trouble]:
        return f" ({'; '.join(troubles)})"
    place = next((reporter.places[index] for index in reporter.awaited[:1] if index in reporter.places), "")
    return f" ({place})" if place else ""
