"""Everything the dashboard shows: the run's files, its status, and the feed of events."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import pyarrow as pa

from headrace.services.orchestrator.dashboard.event_feed import Event, EventFeed
from headrace.services.orchestrator.dashboard.readers.curves import Fresh
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.dashboard.readers.numbers import MetricRows
from headrace.services.orchestrator.dashboard.readers.records import RunLog
from headrace.wire.api.fleet import PublicationTimeline
from headrace.wire.api.series import Resync, StepMetrics
from headrace.wire.api.status import EvaluationRow, RunStatus
from headrace.wire.errors import HeadraceError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger

log = get_logger("dashboard")

MOST_MISSED = 2000
"""A client that has missed more steps reloads the series."""
_LOOK_S = 0.5
_STATUS_S = 1.0
_LOAD_S = 60.0
_EVALS = 5
_BURST = 200
"""More new steps than this in one poll mean that a file is being loaded: clients get a resync instead."""


class RunSource(Protocol):
    """A live or ended run."""

    def status(self) -> RunStatus:
        """The whole run in one object."""
        ...

    def publications(self) -> tuple[PublicationTimeline, ...]:
        """Publications, newest first."""
        ...


class Board:
    """Dashboard state of one run. Used on one event loop only."""

    def __init__(self, files: Files, source: RunSource) -> None:
        self.files = files
        self.source = source
        self.feed = EventFeed()
        self._loaded = asyncio.Event()
        self._last_status: RunStatus | None = None

    async def run(self) -> None:
        """Polls files, rollouts and status. Runs until cancelled."""
        looks = (
            _again(self._look_at_files, _LOOK_S),
            _again(self._look_at_rollouts, _LOOK_S),
            _again(self._look_at_status, _STATUS_S),
        )
        await asyncio.gather(*looks)

    def close(self) -> None:
        """Ends the event streams; to be called before the server is stopped."""
        self.feed.close()

    async def missed(self, after: int | None) -> list[Event]:
        """Initial events for a client whose last known step is `after`; None = it has just loaded everything."""
        if after is None:
            return [_status(self.source.status())]
        await wait_for(self._loaded.wait(), _LOAD_S, "metrics.jsonl to be read")
        rows, evals, lines = self.files.curves.rows, self.files.evals.all, self.files.log
        status = _status(self.source.status())
        return [status, *await asyncio.to_thread(lambda: _missed(rows, evals, lines, after))]

    async def _look_at_files(self) -> None:
        files = self.files
        while fresh := await files.curves.look():
            self._send_steps(fresh)
        for row in await files.evals.look():
            self.feed.send(Event.of("eval", row))
        for record in await files.log.look():
            self.feed.send(Event.of("log", record))
        if not self._loaded.is_set():
            self._loaded.set()
            pa.default_memory_pool().release_unused()

    def _send_steps(self, fresh: Fresh) -> None:
        rows = fresh.rows
        if fresh.anew or len(rows) > _BURST:
            self.feed.send(_resync(self.files.curves.rows))
            return
        for position in range(len(rows)):
            self.feed.send(_step(rows, position))

    async def _look_at_rollouts(self) -> None:
        for index in (self.files.rollouts, self.files.evaluations):
            while await index.look():
                pass

    async def _look_at_status(self) -> None:
        if len(self.feed):
            status = self.source.status()
            undated = status.model_copy(update={"now": 0.0})
            if undated != self._last_status:
                self._last_status = undated
                self.feed.send(_status(status))


async def _again(look: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Calls `look` forever. Logs any error and retries: the dashboard must never end a run."""
    while True:
        began = time.monotonic()
        try:
            await look()
        except (OSError, HeadraceError) as error:
            log.warning("dashboard_waits", error=str(error))
        except Exception:
            log.exception("dashboard_failed")
        # A slow poll, such as of a folder with 100,000 files, is followed by a longer pause.
        await asyncio.sleep(max(pause_s, 3 * (time.monotonic() - began)))


def _missed(rows: MetricRows, evals: Iterable[EvaluationRow], lines: RunLog, after: int) -> list[Event]:
    start = int(rows.steps.searchsorted(after, side="right"))
    if start == 0 or rows.steps[start - 1] != after or len(rows) - start > MOST_MISSED:
        return [_resync(rows)]
    moment = float(rows.row(start - 1).get("t", 0.0))
    events = [_step(rows, position) for position in range(start, len(rows))]
    events += [Event.of("eval", one) for one in evals if (one.t or 0.0) >= moment]
    return events + [Event.of("log", one) for one in lines.since(moment)]


def _status(status: RunStatus) -> Event:
    """A status event with only the newest evaluations: they have events of their own, and a long run has many."""
    return Event.of("status", status.model_copy(update={"eval": status.eval[-_EVALS:]}))


def _step(rows: MetricRows, position: int) -> Event:
    return Event.of("step", StepMetrics(rows.row(position)), int(rows.steps[position]))


def _resync(rows: MetricRows) -> Event:
    return Event.of("resync", Resync(last=int(rows.steps[-1]) if len(rows) else 0))
