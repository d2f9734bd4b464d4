"""Threads that hang in a group's rendezvous, or in its first broadcast, after their deadline.

They cannot be ended: `ncclCommInitRank` waits for its peers without a deadline, and cannot be interrupted from outside.
Each keeps a thread, and what NCCL has allocated, until it returns by itself or the process ends. So they are counted,
and a replica with several hanging threads is reached over the disk only.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from headrace.services.trainer import metrics
from headrace.wire.telemetry.logs import get_logger

MOST_OF_A_REPLICA = 3
MOST = 16
"""Limit over all replicas together: names of replicas come and go, threads stay."""
log = get_logger("trainer.sender")


class Abandoned:
    """Counts this process's hanging threads by replica. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hanging: Counter[str] = Counter()
        self.report: Callable[..., object] = _ignore
        """Called with an event's name and fields."""

    def add(self, replica_id: str, group: str, thread: "Future[Any]") -> None:
        """Counts a thread of `group` that has missed its deadline, until it ends."""
        with self._lock:
            self._hanging[replica_id] += 1
            hanging, of_all = self._hanging[replica_id], self._hanging.total()
        metrics.ABANDONED_JOINS.inc()
        metrics.ABANDONED_THREADS.set(of_all)
        facts = {"replica": replica_id, "group": group, "hanging": hanging, "hanging_of_all": of_all}
        log.warning("join_abandoned", **facts)
        self.report("join_abandoned", **facts)
        thread.add_done_callback(lambda _: self._ended(replica_id, group))

    def forget_log(self) -> None:
        """Detaches the event log, which is about to be closed."""
        self.report = _ignore

    def refusal(self, replica_id: str) -> str:
        """Returns why no more groups are opened to a replica; empty if they are."""
        with self._lock:
            hanging, of_all = self._hanging[replica_id], self._hanging.total()
        way_out = "they cannot be broken off: look at the network between the two, then start the trainer again"
        if hanging >= MOST_OF_A_REPLICA:
            return f"{hanging} joins of its collective groups hang in the trainer; {way_out}"
        if of_all >= MOST:
            return f"{of_all} joins of collective groups hang in the trainer; {way_out}"
        return ""

    def _ended(self, replica_id: str, group: str) -> None:
        with self._lock:
            self._hanging[replica_id] -= 1
            # Names come and go.
            self._hanging += Counter()
            of_all = self._hanging.total()
        metrics.ABANDONED_THREADS.set(of_all)
        log.info("abandoned_join_ended", replica=replica_id, group=group, hanging_of_all=of_all)


def _ignore(event: str, **fields: object) -> None:
    """Drops events before the event log is open, and after it is closed."""
