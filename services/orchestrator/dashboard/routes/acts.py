"""Operator actions: `/api/actions/...`. The page asks for confirmation; each action is in the event log."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.services.orchestrator.http.replies import RequestRefusedError, Who, answer, body_schema, read_body
from headrace.services.orchestrator.state.operator import Operator
from headrace.wire.api.actions import Said
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.http import act_refusals

ENDED = "no process of this run is alive, only its files are shown; continue it with `headrace train --resume`"
ACT = act_refusals(400, 401, 409, 422)
"""Refusals of an action."""


class Act(BaseModel):
    """Body of an action; its `who` is free text for the log."""

    model_config = ConfigDict(extra="forbid", strict=True)

    who: Who = "dashboard"


class Scale(Act):
    """`POST /api/actions/scale`."""

    service: Annotated[str, Field(pattern=r"^[a-z]{1,40}$")]
    count: Annotated[int, Field(ge=0, le=1000)]


class Drain(Act):
    """`POST /api/actions/drain`; `on = false` ends the drain."""

    replica: str
    on: bool = True


def add_acts(app: FastAPI, operator: Operator | None) -> None:
    """Adds the routes; without an operator all actions are refused."""

    def acting() -> Operator:
        if operator is None:
            raise RequestRefusedError(409, ENDED)
        return operator

    def add(name: str, about: str, act_of: Callable[[Operator], Callable[[str], Awaitable[str]]]) -> None:
        async def post(request: Request) -> Response:
            act = await read_body(request, Act)
            return await said(act_of(acting())(act.who))

        app.post(
            f"/api/actions/{name}",
            name=f"post_{name}",
            description=about,
            response_model=Said,
            responses=ACT,
            openapi_extra=body_schema(Act),
        )(post)

    add("pause", "Stops issuing new prompts.", lambda one: one.pause)
    add("resume", "Resumes issuing prompts.", lambda one: one.resume)
    add("checkpoint", "Requests a checkpoint after the trainer's current step.", lambda one: one.checkpoint)
    add("stop", "Requests that the trainer finish its step, write a checkpoint and exit.", lambda one: one.stop)

    @app.post("/api/actions/scale", response_model=Said, responses=ACT, openapi_extra=body_schema(Scale))
    async def post_scale(request: Request) -> Response:
        """Sets the number of replicas of a service."""
        act = await read_body(request, Scale)
        return await said(acting().scale(act.service, act.count, act.who))

    @app.post("/api/actions/drain", response_model=Said, responses=ACT, openapi_extra=body_schema(Drain))
    async def post_drain(request: Request) -> Response:
        """Drains a replica, or ends its drain."""
        act = await read_body(request, Drain)
        return await said(acting().drain(act.replica, act.on, act.who))


async def said(act: Awaitable[str]) -> Response:
    """Answers with what was done, in one sentence; 409 if it is impossible, 503 if a service is unavailable."""
    try:
        return answer(Said(said=await act))
    except ConfigError as error:
        raise RequestRefusedError(409, str(error)) from error
    except TransientError as error:
        raise RequestRefusedError(503, str(error)) from error
