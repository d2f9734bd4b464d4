"""`/api/rollouts`: the list of rollouts, also as a file, and one group."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Query, Response
from fastapi.responses import StreamingResponse

from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.readers import query as queries
from headrace.services.orchestrator.dashboard.readers.exported import as_text
from headrace.services.orchestrator.dashboard.readers.group_view import COLUMNS, group_view
from headrace.services.orchestrator.dashboard.readers.rollout_index import RolloutIndex
from headrace.services.orchestrator.http.replies import RequestRefusedError, answer, on_thread
from headrace.wire.api.rollouts import DamagedStep, GroupView, RolloutPage
from headrace.wire.errors import DataError
from headrace.wire.http import read_refusals

_MOST_TEXT = 200
_MOST_DAMAGED = 20
_MOST_EXPORTED, _AT_ONCE = 20_000, 200
_WHOLE = 2**31


def _wanted(
    step_from: int | None = None,
    step_to: int | None = None,
    reward_min: float | None = None,
    reward_max: float | None = None,
    version: int | None = None,
    finish: str | None = None,
    replica: str | None = None,
    set: Annotated[str | None, Query(max_length=_MOST_TEXT)] = None,
    group: int | None = None,
    text: Annotated[str | None, Query(max_length=_MOST_TEXT)] = None,
    component: Annotated[str | None, Query(max_length=_MOST_TEXT)] = None,
    component_min: float | None = None,
    component_max: float | None = None,
    sort: Annotated[str, Query(pattern=f"^-?({'|'.join(queries.SORTS)})$")] = "-step",
) -> queries.Query:
    return queries.Query(
        step_from=step_from, step_to=step_to, reward_min=reward_min, reward_max=reward_max, version=version,
        finish=finish or None, replica=replica or None, set=set or None, group_index=group, text=text or None,
        component=component or None, component_min=component_min, component_max=component_max, sort=sort,
    )  # fmt: skip


Wanted = Annotated[queries.Query, Depends(_wanted)]


def add_rollouts(app: FastAPI, board: Board) -> None:
    """Adds the routes."""

    def indexed(of: Literal["training", "evaluations"] = "training") -> RolloutIndex:
        return board.files.evaluations if of == "evaluations" else board.files.rollouts

    Index = Annotated[RolloutIndex, Depends(indexed)]

    @app.get("/api/rollouts", response_model=RolloutPage, responses=read_refusals(401, 422, 503))
    async def get_rollouts(
        index: Index,
        wanted: Wanted,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=0, le=200)] = 100,
    ) -> Response:
        """Rollouts that were trained, or of the newest evaluations, whose step is the evaluated version.

        `partial` = repeat the request to continue the text search, `reading` = still indexing.
        """
        found = await index.find(wanted)
        damaged = sorted(index.damaged.items())[:_MOST_DAMAGED]
        rows = await index.listed(found, offset, limit, component=wanted.component or "")
        return answer(
            RolloutPage(
                total=len(found.positions),
                rows=tuple(rows),
                partial=found.partial,
                reading=index.reading,
                finish_reasons=index.words("finish_reason"),
                replicas=index.words("replica_id"),
                sets=tuple(filter(None, index.words("set"))),
                components=await index.components(),
                damaged=tuple(DamagedStep(step=step, error=words) for step, words in damaged),
            )
        )

    @app.get("/api/rollouts/export", response_class=StreamingResponse, responses=read_refusals(401, 422, 503))
    async def get_export(
        index: Index, wanted: Wanted, format: Annotated[str, Query(pattern="^(csv|jsonl)$")]
    ) -> StreamingResponse:
        """The same rollouts in their order with whole texts, as CSV or JSON lines: the first 20,000.

        Refuses with 503 while older steps are still read or their texts searched; leaves out what cannot be read.
        """
        found = await index.find(wanted)
        if found.partial or index.reading:
            raise RequestRefusedError(503, "the search through rollouts goes on: ask again")

        async def pieces() -> AsyncIterator[str]:
            for first in range(0, min(len(found.positions), _MOST_EXPORTED), _AT_ONCE):
                most = min(_AT_ONCE, _MOST_EXPORTED - first)
                rows = await index.listed(found, first, most, component=wanted.component or "", short=_WHOLE)
                yield await asyncio.to_thread(as_text, format, [row for row in rows if row.group_id], head=first == 0)

        return StreamingResponse(pieces(), media_type="text/csv" if format == "csv" else "application/jsonl")

    @app.get(
        "/api/rollouts/{step}/{group_index}", response_model=GroupView, responses=read_refusals(401, 404, 422, 503)
    )
    async def get_group(index: Index, step: int, group_index: int) -> Response:
        """All rollouts of a group, token by token."""
        try:
            table = await index.table(step, group_index, COLUMNS)
            if table is None:
                raise RequestRefusedError(404, f"step {step} has no group {group_index}")
            found = table
            return await on_thread(lambda: group_view(step, found.to_pylist(), board.files.decoder.texts))
        except DataError as error:
            raise RequestRefusedError(404, str(error)) from error
