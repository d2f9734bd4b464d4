"""Finished spans on their way out: a bounded queue and one daemon thread. Putting a span never blocks.

The thread begins with the first span: the trainer starts its other ranks while it has no threads. It ends with the
process, or within the time that `close` is given; what has not left by then is dropped, and counted.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence

from headrace.wire.telemetry import get_logger
from headrace.wire.tracing import metrics
from headrace.wire.tracing.spans import Finished

_EVERY_S = 0.5
_BATCH = 512
_SIZE = 4096
log = get_logger("headrace.wire.tracing")

Export = Callable[[Sequence[Finished]], bool]
"""Sends some spans; whether they have arrived. May take its time, may raise."""


class Outbox:
    """Sends spans in batches."""

    def __init__(self, open_export: Callable[[], Export], *, size: int = _SIZE, every_s: float = _EVERY_S) -> None:
        """`open_export` is called once, by the thread. At most `size` spans wait."""
        self._open = open_export
        self._queue: queue.Queue[Finished] = queue.Queue(size)
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_failing = False
        self._lost = 0
        self._sending = 0
        self._closed = False

    def put(self, span: Finished) -> None:
        """Takes a span, or drops it where too many wait already."""
        if self._thread is None:
            self._begin()
        try:
            self._queue.put_nowait(span)
        except queue.Full:
            self._drop(1, "the queue is full")

    def close(self, timeout_s: float) -> None:
        """Sends what is left, for at most `timeout_s` seconds."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        left = self._queue.qsize() + self._sending
        self._closed = True
        if left:
            self._drop(left, "the process ends")
        if self._lost:
            log.warning("spans_dropped", count=self._lost)

    def _begin(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        export = self._opened()
        while not self._stop.wait(self._every_s):
            self._send_all(export)
        self._send_all(export)

    def _opened(self) -> Export:
        try:
            return self._open()
        except Exception as error:  # As of an export: the run goes on.
            reason = error

        def refuse(spans: Sequence[Finished]) -> bool:
            raise reason

        return refuse

    def _send_all(self, export: Export) -> None:
        while batch := self._take():
            began = time.monotonic()
            self._sending = len(batch)
            try:
                arrived = export(batch)
                reason = "" if arrived else "the collector did not take them"
            except Exception as error:  # An exporter may raise anything; the run goes on without its traces.
                reason = f"{type(error).__name__}: {error}"
            metrics.EXPORT_SECONDS.observe(time.monotonic() - began)
            self._sending = 0
            if self._closed:
                return  # They are counted, and the process ends.
            if reason:
                self._drop(len(batch), reason)
            else:
                metrics.EXPORTED.inc(len(batch))
                self._is_failing = False

    def _take(self) -> list[Finished]:
        batch: list[Finished] = []
        while len(batch) < _BATCH:
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return batch

    def _drop(self, count: int, reason: str) -> None:
        """Counts dropped spans; logs a line once per outage."""
        self._lost += count
        metrics.DROPPED.inc(count)
        if not self._is_failing:
            self._is_failing = True
            log.warning("spans_not_exported", reason=reason, effect="the run continues without these traces")
