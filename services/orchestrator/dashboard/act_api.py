"""What operators do: `/api/actions/...`. The page asks once before it sends; each act is in the event log."""

from collections.abc import Awaitable
from typing import Annotated

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.operator import Operator
from services.orchestrator.replies import RefusedError, answer, body_schema, read_body
from wire.errors import ConfigError, TransientError

ENDED = "nothing of this run is alive: only its files are shown; `headrace train --resume` goes on with it"
Who = Annotated[str, Field(pattern=r"^\w[\w .@-]{0,39}$")]


class Act(BaseModel):
    """`who` is free text for the log."""

    model_config = ConfigDict(extra="forbid", strict=True)

    who: Who = "dashboard"


class Scale(Act):
    """`POST /api/actions/scale`."""

    service: str
    count: Annotated[int, Field(ge=0, le=1000)]


class Drain(Act):
    """`POST /api/actions/drain`: off with `on = false`."""

    replica: str
    on: bool = True


def add_acts(app: FastAPI, operator: Operator | None) -> None:
    """Adds the routes; without an operator all acts are refused."""

    def acting() -> Operator:
        if operator is None:
            raise RefusedError(409, ENDED)
        return operator

    @app.post("/api/actions/pause", openapi_extra=body_schema(Act))
    async def post_pause(request: Request) -> Response:
        """No new prompt is issued."""
        act = await read_body(request, Act)
        return await said(acting().pause(act.who))

    @app.post("/api/actions/resume", openapi_extra=body_schema(Act))
    async def post_resume(request: Request) -> Response:
        """Prompts are issued again."""
        act = await read_body(request, Act)
        return await said(acting().resume(act.who))

    @app.post("/api/actions/checkpoint", openapi_extra=body_schema(Act))
    async def post_checkpoint(request: Request) -> Response:
        """The trainer writes a checkpoint after the step it is in."""
        act = await read_body(request, Act)
        return await said(acting().checkpoint(act.who))

    @app.post("/api/actions/stop", openapi_extra=body_schema(Act))
    async def post_stop(request: Request) -> Response:
        """The trainer ends its step, writes a checkpoint and leaves."""
        act = await read_body(request, Act)
        return await said(acting().stop(act.who))

    @app.post("/api/actions/scale", openapi_extra=body_schema(Scale))
    async def post_scale(request: Request) -> Response:
        """Another number of replicas of a service."""
        act = await read_body(request, Scale)
        return await said(acting().scale(act.service, act.count, act.who))

    @app.post("/api/actions/drain", openapi_extra=body_schema(Drain))
    async def post_drain(request: Request) -> Response:
        """A replica takes no more prompts, or takes them again."""
        act = await read_body(request, Drain)
        return await said(acting().drain(act.replica, act.on, act.who))


async def said(act: Awaitable[str]) -> Response:
    """What was done, in one sentence; 409 with the reason for what cannot be, 503 while somebody is away."""
    try:
        return answer({"said": await act})
    except ConfigError as error:
        raise RefusedError(409, str(error)) from error
    except TransientError as error:
        raise RefusedError(503, str(error)) from error
