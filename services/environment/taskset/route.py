"""vLLM's generate route, as far as the train client of `verifiers` 0.4 and `renderers` 0.1 speak it.

Source: renderers 0.1.12, client.py (`generate`, `_parse_completion_logprobs`).
"""

import hmac
from typing import Annotated

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StrictInt, ValidationError

from headrace.services.environment.player.budget import BudgetSpentError
from headrace.services.environment.player.flights import EpisodeOverError
from headrace.services.environment.taskset.calls import EngineCall, EngineCalls, TokenRequest
from headrace.wire.http import Bodies, BodyLimits

MODEL = "policy"
"""Its name."""
_BODIES = BodyLimits(most_bytes=32 << 20, total_bytes=64 << 20)
"""Bounds of one process of the taskset."""
_SESSION, _MOST_ID = "x-session-id", 1 << 31


def generate_app(calls: EngineCalls, key: str) -> FastAPI:
    """`/inference/v1/generate` and `/v1/models` of one episode, for bearers of `key`."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    def knows(request: Request) -> bool:
        given = request.headers.get("authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {key}".encode())

    async def generate(request: Request) -> Response:
        if not knows(request):
            return _refused(401, "the key is not that of the taskset's process", "invalid_api_key")
        try:
            asked = read_request(await request.body(), request.headers.get(_SESSION, ""))
        except ValueError as error:
            return _refused(400, f"not a request for {MODEL}: {type(error).__name__}: {error}", "invalid_request")
        try:
            return JSONResponse(answer_of(await calls.answer(asked)))
        except BudgetSpentError as spent:
            return _refused(400, spent.message, spent.code)
        except EpisodeOverError:
            return _refused(500, "the episode is over", "policy_lost")
        except Exception as error:  # The episode ends by it (`Flights.failed`).
            return _refused(500, f"no turn can be sampled: {error}", "policy_lost")

    async def models(request: Request) -> Response:
        if not knows(request):
            return _refused(401, "the key is not that of the taskset's process", "invalid_api_key")
        card = {"id": MODEL, "object": "model", "created": 0, "owned_by": "headrace"}
        return JSONResponse({"object": "list", "data": [{**card, "max_model_len": calls.context_length}]})

    app.add_middleware(Bodies, limits=_BODIES, error_of=_too_much)
    app.add_route("/inference/v1/generate", generate, ["POST"])
    app.add_route("/v1/models", models, ["GET"])
    return app


class _SamplingParams(BaseModel):
    max_tokens: StrictInt | None = Field(None, ge=0)
    stop_token_ids: list[StrictInt] | None = None


class _Generate(BaseModel):
    sampling_params: _SamplingParams
    token_ids: list[Annotated[StrictInt, Field(ge=0, lt=_MOST_ID)]] = Field(min_length=1)


def read_request(body: bytes, session: str) -> TokenRequest:
    """A request; how the policy is sampled is the run's to decide. Raises ValueError."""
    try:
        found = _Generate.model_validate_json(body)
    except ValidationError as error:
        # Without the input, which may be as long as the context.
        first = error.errors(include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return TokenRequest(
        session=session,
        context_ids=np.array(found.token_ids, np.int32),
        max_tokens=found.sampling_params.max_tokens or 0,
        stop_token_ids=tuple(found.sampling_params.stop_token_ids or ()),
    )


def answer_of(call: EngineCall) -> dict[str, object]:
    """The answer: ids of the completion, its stop token included, and the log-probability of each."""
    ids = call.turn.completion_ids.tolist()
    both = zip(ids, call.turn.logprobs.tolist(), strict=True)
    content = [{"token": f"token_id:{one}", "logprob": value, "bytes": None, "top_logprobs": []} for one, value in both]
    choice = {
        "index": 0,
        "token_ids": ids,
        "finish_reason": call.turn.finish_reason.value,
        "logprobs": {"content": content},
    }
    return {"request_id": f"turn-{call.number}", "choices": [choice]}


def _refused(status: int, message: str, code: str) -> Response:
    return JSONResponse(_error(status, message, code), status)


def _too_much(status: int, message: str) -> dict[str, object]:
    return _error(status, message, "invalid_request")


def _error(status: int, message: str, code: str) -> dict[str, object]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "code": code}}
