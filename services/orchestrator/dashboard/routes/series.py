"""`/api/series`, `/api/why`, `/api/events` and `/api/log`."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.readers.numbers import TRAINED_TOTAL, MetricRows
from headrace.services.orchestrator.dashboard.readers.thin import thin
from headrace.services.orchestrator.http.replies import RequestRefusedError, answer, on_thread
from headrace.wire.api.series import CurvePoints, LogRecord, MetricSeries
from headrace.wire.api.status import EvaluationRow
from headrace.wire.api.why import StepDifferences
from headrace.wire.errors import ConfigError
from headrace.wire.http import bearer_of, read_refusals
from headrace.wire.rundir.metrics import TIME
from headrace.wire.why.measure import HISTORY, step_differences

MOST_NAMES = 64
_MOST_POINTS = 20_000
_AXES = (TIME, TRAINED_TOTAL)
"""Large numbers that differ little from step to step: they are not rounded."""
_LAST_ID = re.compile(r"s(\d{1,15})")
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def add_curves(app: FastAPI, board: Board) -> None:
    """Adds the routes."""
    comparing = asyncio.Lock()

    @app.get("/api/series", response_model=MetricSeries, responses=read_refusals(401, 422))
    async def get_series(
        names: str = "",
        points: Annotated[int, Query(ge=4, le=_MOST_POINTS)] = 1000,
        first: Annotated[int | None, Query(alias="from")] = None,
        last: Annotated[int | None, Query(alias="to")] = None,
    ) -> Response:
        """Curves of some metrics between two steps, thinned to at most `points` each; extremes are kept."""
        wanted = [name for name in names.split(",") if name]
        if len(wanted) > MOST_NAMES:
            raise RequestRefusedError(422, f"names: at most {MOST_NAMES} at once")
        rows, evals = board.files.curves.rows, board.files.evals.all
        return await on_thread(lambda: series_view(rows, wanted, points, first, last, evals))

    @app.get("/api/why/{step}", response_model=StepDifferences, responses=read_refusals(401, 404, 422))
    async def get_why(step: int) -> Response:
        """What moved most in a step against the steps before it, by size."""
        rows = board.files.curves.rows
        centre = int(np.searchsorted(rows.steps, step))

        def compared() -> StepDifferences:
            near = range(centre - HISTORY, centre + HISTORY)
            lines = {int(one): rows.row(at) if at in near else {} for at, one in enumerate(rows.steps)}
            return step_differences(board.files.run_dir, lines, step)

        try:
            async with comparing:
                return await on_thread(compared)
        except ConfigError as error:
            raise RequestRefusedError(404, str(error)) from error

    @app.get("/api/events", response_class=StreamingResponse, responses=read_refusals(401, 422, 503))
    async def get_events(
        request: Request, after: str = "", last_event_id: Annotated[str | None, Header()] = None
    ) -> StreamingResponse:
        """Server-sent events: status, step, eval, log; `resync` = reload the series.

        Of too many streams the oldest of the token that has the most ends.
        """
        if board.feed.is_closed:
            raise RequestRefusedError(503, "the service is stopping")
        match = _LAST_ID.fullmatch(last_event_id or after)
        known = int(match.group(1)) if match else None
        stream = board.feed.listen(lambda: board.missed(known), bearer_of(request.headers))
        return StreamingResponse(stream, media_type="text/event-stream", headers=_STREAM_HEADERS)

    @app.get("/api/log", response_model=list[LogRecord], responses=read_refusals(401, 422))
    async def get_log(limit: Annotated[int, Query(ge=0, le=2000)] = 200) -> Response:
        """Run-level events, newest first."""
        return answer(board.files.log.newest(limit))


def series_view(
    rows: MetricRows,
    names: Sequence[str],
    points: int,
    first: int | None,
    last: int | None,
    evals: tuple[EvaluationRow, ...],
) -> MetricSeries:
    """The answer of `/api/series`. Pure."""
    start = 0 if first is None else int(np.searchsorted(rows.steps, first, side="left"))
    end = len(rows) if last is None else int(np.searchsorted(rows.steps, last, side="right"))
    steps = rows.steps[start:end]
    series = {}
    for name in names:
        found = rows.column(name)
        if found is not None:
            values = found[start:end]
            kept = thin(values, points)
            exact = name in _AXES
            numbers = [
                None if value != value else value if exact else float(f"{value:.7g}") for value in values[kept].tolist()
            ]
            series[name] = CurvePoints(x=tuple(steps[kept].tolist()), y=tuple(numbers))
    last_step = int(rows.steps[-1]) if len(rows) else 0
    return MetricSeries(last=last_step, names=tuple(rows.columns), series=series, evals=evals)
