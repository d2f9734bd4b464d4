"""What the dashboard shows and tells: the files of the run, its status, and the feed of what happens."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from services.orchestrator.dashboard.curves import Fresh
from services.orchestrator.dashboard.feed import Event, Feed
from services.orchestrator.dashboard.files import Files
from services.orchestrator.dashboard.numbers import Rows
from services.orchestrator.dashboard.records import Record, RunLog
from wire.errors import HeadraceError
from wire.lifecycle import wait_for
from wire.telemetry import get_logger

log = get_logger("dashboard")

MOST_MISSED = 2000
"""A client that has missed more steps loads the series anew."""
_LOOK_S = 0.5
_STATUS_S = 1.0
_LOAD_S = 60.0
_EVALS = 5
_BURST = 200
"""More new steps than this in one look are no news but a file that is being read."""


class Source(Protocol):
    """The run, live or ended. JSON values only; times are unix seconds."""

    def status(self) -> dict[str, Any]:
        """The run in one object."""
        ...

    def state(self) -> str:
        """As in the status; so are the others that follow."""
        ...

    def evals(self) -> list[dict[str, Any]]:
        """All of them."""
        ...

    def replicas(self) -> list[dict[str, Any]]:
        """Those with a live lease."""
        ...

    def trainer(self) -> dict[str, Any]:
        """What it does."""
        ...

    def streams(self) -> dict[str, dict[str, Any]]:
        """Name -> what is in it."""
        ...

    def publications(self) -> list[dict[str, Any]]:
        """Newest first."""
        ...


class Board:
    """Of one run; on one event loop."""

    def __init__(self, files: Files, source: Source) -> None:
        self.files = files
        self.source = source
        self.feed = Feed()
        self._loaded = asyncio.Event()
        self._told = ""

    async def run(self) -> None:
        """Looks at everything again and again. Never ends by itself."""
        looks = (
            _again(self._look_at_files, _LOOK_S),
            _again(self._look_at_rollouts, _LOOK_S),
            _again(self._look_at_status, _STATUS_S),
        )
        await asyncio.gather(*looks)

    def close(self) -> None:
        """Ends the streams; before the server is stopped."""
        self.feed.close()

    async def missed(self, after: int | None) -> list[Event]:
        """What a client that knows step `after` has to be told first; None = it has loaded everything just now."""
        if after is None:
            return [_status(self.source.status())]
        await wait_for(self._loaded.wait(), _LOAD_S, "metrics.jsonl to be read")
        rows, evals, lines = self.files.curves.rows, self.files.evals.all, self.files.log
        status = _status(self.source.status())
        return [status, *await asyncio.to_thread(lambda: _missed(rows, evals, lines, after))]

    async def _look_at_files(self) -> None:
        files = self.files
        while fresh := await files.curves.look():
            self._tell_steps(fresh)
        for record in await files.evals.look():
            self.feed.send(Event.of("eval", record))
        for record in await files.log.look():
            self.feed.send(Event.of("log", record))
        if not self._loaded.is_set():
            self._loaded.set()
            pa.default_memory_pool().release_unused()

    def _tell_steps(self, fresh: Fresh) -> None:
        rows = fresh.rows
        if fresh.anew or len(rows) > _BURST:
            self.feed.send(_resync(self.files.curves.rows))
            return
        for position in range(len(rows)):
            self.feed.send(_step(rows, position))

    async def _look_at_rollouts(self) -> None:
        while await self.files.shelf.look():
            pass

    async def _look_at_status(self) -> None:
        if len(self.feed):
            status = self.source.status()
            said = json.dumps({key: value for key, value in status.items() if key != "now"})
            if said != self._told:
                self._told = said
                self.feed.send(_status(status))


async def _again(look: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """For ever. Whatever goes wrong is told and tried again: what people look at must never end a run."""
    while True:
        began = time.monotonic()
        try:
            await look()
        except (OSError, HeadraceError) as error:
            log.warning("dashboard_waits", error=str(error))
        except Exception:
            log.exception("dashboard_failed")
        # What takes long, such as a folder of 100,000 files, is not done without a pause.
        await asyncio.sleep(max(pause_s, 3 * (time.monotonic() - began)))


def _missed(rows: Rows, evals: list[Record], lines: RunLog, after: int) -> list[Event]:
    start = int(rows.steps.searchsorted(after, side="right"))
    if start == 0 or rows.steps[start - 1] != after or len(rows) - start > MOST_MISSED:
        return [_resync(rows)]
    moment = float(rows.row(start - 1).get("t", 0.0))
    events = [_step(rows, position) for position in range(start, len(rows))]
    events += [Event.of("eval", one) for one in evals if float(one.get("t", 0.0)) >= moment]
    return events + [Event.of("log", one) for one in lines.since(moment)]


def _status(status: Mapping[str, Any]) -> Event:
    """With the newest evaluations alone: all of a long run every second would be a burden, and they have events."""
    return Event.of("status", {**status, "eval": status["eval"][-_EVALS:]})


def _step(rows: Rows, position: int) -> Event:
    return Event.of("step", rows.row(position), int(rows.steps[position]))


def _resync(rows: Rows) -> Event:
    return Event.of("resync", {"last": int(rows.steps[-1]) if len(rows) else 0})
