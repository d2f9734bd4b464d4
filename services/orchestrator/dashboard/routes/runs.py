"""`/api/runs` and `/api/compare`: the sibling run directories, and several runs side by side."""

import asyncio
import time
from collections import OrderedDict
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Response

from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.readers.curves import Curves
from headrace.services.orchestrator.dashboard.readers.records import Evals
from headrace.services.orchestrator.dashboard.readers.run_list import (
    RunFolder,
    config_rows,
    find_run,
    flat,
    run_folders,
    run_rows,
)
from headrace.services.orchestrator.dashboard.routes.series import MOST_NAMES, series_view
from headrace.services.orchestrator.http.replies import RequestRefusedError, on_thread
from headrace.wire.api.runs import ComparedRun, RunComparison, RunRow
from headrace.wire.config.kept import kept_tables
from headrace.wire.errors import ConfigError
from headrace.wire.http import read_refusals
from headrace.wire.rundir.layout import RunPaths

_MOST_RUNS = 8


class Siblings:
    """Cache of the curves of the most recently compared runs."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, tuple[Curves, Evals]] = OrderedDict()
        self._lock = asyncio.Lock()

    async def read(self, folder: RunFolder) -> tuple[Curves, Evals]:
        """Current curves and evaluations of a run."""
        async with self._lock:
            path, files = folder.path, RunPaths(folder.path)
            curves, evals = self._known.setdefault(path, (Curves(files.metrics), Evals(files.evals)))
            self._known.move_to_end(path)
            if len(self._known) > _MOST_RUNS:
                self._known.popitem(last=False)
            while await curves.look():
                pass
            await evals.look()
            return curves, evals


def add_runs(app: FastAPI, board: Board) -> None:
    """Adds the routes."""
    run_dir = board.files.run_dir.resolve()
    siblings = Siblings()

    @app.get("/api/runs", response_model=list[RunRow], responses=read_refusals(401))
    async def get_runs() -> Response:
        """All sibling runs, newest first."""
        state, now = board.source.status().state, time.time()
        return await on_thread(lambda: run_rows(run_folders(run_dir.parent), now, run_dir, state))

    @app.get("/api/compare", response_model=RunComparison, responses=read_refusals(401, 404, 422, 503))
    async def get_compare(
        runs: str, names: str = "reward_mean", points: Annotated[int, Query(ge=4, le=5000)] = 500
    ) -> Response:
        """Curves and evaluations of some runs, and their configs key by key."""
        wanted, metrics = [[one for one in text.split(",") if one] for text in (runs, names)]
        if not 1 <= len(wanted) <= _MOST_RUNS or len(metrics) > MOST_NAMES:
            raise RequestRefusedError(422, f"compare 1 to {_MOST_RUNS} runs by at most {MOST_NAMES} metrics")
        try:
            folders = [await asyncio.to_thread(find_run, run_dir.parent, name) for name in wanted]
            configs = [flat(kept_tables(folder.path)) for folder in folders]
        except ConfigError as error:
            raise RequestRefusedError(404, str(error)) from error
        read = [await siblings.read(folder) for folder in folders]

        def compared() -> RunComparison:
            shown = []
            for folder, (curves, evals) in zip(folders, read, strict=True):
                view = series_view(curves.rows, metrics, points, None, None, evals.all)
                shown.append(ComparedRun(name=folder.name, **dict(view)))
            return RunComparison(runs=tuple(shown), config=tuple(config_rows(configs)))

        return await on_thread(compared)
