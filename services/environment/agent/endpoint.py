"""The policy as an OpenAI-compatible endpoint, for the program of one episode."""

import hmac
import time

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from headrace.services.environment.agent.answers import chunks, completion
from headrace.services.environment.agent.calls import PolicyCalls
from headrace.services.environment.agent.requests import MODEL, read_request
from headrace.wire.api.openai import ChatRefusedError, model, models
from headrace.wire.contracts import Sampling
from headrace.wire.http import Bodies, BodyLimits

_BODIES = BodyLimits(most_bytes=32 << 20, total_bytes=32 << 20)
"""Bounds of one episode: its program may send several requests at a time, and the worker has other episodes."""


def endpoint_app(calls: PolicyCalls, key: str, sampling: Sampling) -> FastAPI:
    """`/v1/chat/completions` and `/v1/models`, for bearers of `key`; `sampling` is the episode's."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    def check(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
            raise ChatRefusedError(401, "the key is not that of OPENAI_API_KEY", "invalid_api_key")

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, ChatRefusedError)
        return JSONResponse(error.body(), error.status)

    app.add_exception_handler(ChatRefusedError, refused)
    app.add_middleware(Bodies, limits=_BODIES, error_of=_too_much)

    async def complete(request: Request) -> Response:
        check(request)
        asked = read_request(await request.body(), sampling)
        try:
            turn = await calls.answer(asked)
        except ChatRefusedError:
            raise
        except Exception as error:
            # The episode ends by it (`Flights.failed`): the program reads that no later try will do.
            raise ChatRefusedError(500, f"no turn can be sampled: {error}", "policy_lost") from error
        created = int(time.time())
        if asked.stream:
            events = chunks(turn, created, with_usage=asked.with_usage)
            return StreamingResponse(events, media_type="text/event-stream")
        return JSONResponse(completion(turn, created))

    async def every_model(request: Request) -> Response:
        check(request)
        return JSONResponse(models([MODEL], 0))

    async def one_model(request: Request) -> Response:
        check(request)
        if request.path_params["name"] != MODEL:
            raise ChatRefusedError(404, f"the policy is {MODEL!r}", "model_not_found", param="model")
        return JSONResponse(model(MODEL, 0))

    async def unknown(request: Request) -> Response:
        check(request)
        raise ChatRefusedError(
            404, f"{request.method} {request.url.path}: served are /v1/chat/completions and /v1/models"
        )

    app.add_route("/v1/chat/completions", complete, ["POST"])
    app.add_route("/v1/models", every_model, ["GET"])
    app.add_route("/v1/models/{name:path}", one_model, ["GET"])
    app.add_route("/{path:path}", unknown, ["GET", "POST", "PUT", "DELETE"])
    return app


def _too_much(status: int, words: str) -> dict[str, object]:
    return ChatRefusedError(status, words).body()
