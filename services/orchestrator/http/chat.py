"""`POST /v1/chat/completions` and `GET /v1/models`: the current policy for OpenAI clients.

The orchestrator chooses a serving replica and relays its answer. Chats create no groups, no journal entries and no
training counts.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import grpc
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from headrace.services.orchestrator.http.chat_request import ChatBody, read_chat, to_wire
from headrace.services.orchestrator.http.replies import body_schema
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.operator_requests import OperatorRequests
from headrace.services.orchestrator.state.registry import Registry, Replica
from headrace.wire.api.openai import DONE, ChatObjects, ChatRefusedError, event, models, usage
from headrace.wire.contracts.codec import VERSION
from headrace.wire.http import chat_refusals
from headrace.wire.peers.rpc import metadata
from headrace.wire.v1 import orchestrator_pb2
from headrace.wire.v1 import rollout_pb2 as pb

POLICY = "policy"
"""The model's name in every run; the run id is accepted too."""
_POLL_S = 0.1
_GRACE_S = 5.0
"""Extra time for the replica to report its own timeout before the call is cut off."""
_RETRY_S = 2
_ASLEEP_S = 10
"""Retry-After while the engines sleep: a trainer step takes at least this long."""
_STATUS = {
    pb.ChatRefusal.KIND_BAD_REQUEST: (400, "invalid_value", 0),
    pb.ChatRefusal.KIND_BUSY: (429, "busy", _RETRY_S),
    pb.ChatRefusal.KIND_UNAVAILABLE: (503, "no_weights", _RETRY_S),
    pb.ChatRefusal.KIND_LATE: (504, "timeout", 0),
}
_REFUSALS = chat_refusals(400, 401, 404, 408, 413, 429, 500, 503, 504)
_ELSEWHERE = (pb.ChatRefusal.KIND_BUSY, pb.ChatRefusal.KIND_UNAVAILABLE)
"""Refusals after which another replica is tried."""


class ChatRoutes:
    """Relays the chats of this orchestrator to replicas."""

    def __init__(
        self, settings: OrchestratorSettings, registry: Registry, clients: Clients, operator_requests: OperatorRequests
    ) -> None:
        self._table = settings.orchestrator.chat
        self._stop_token_ids = settings.stop_token_ids
        self._registry, self._clients, self._operator_requests = registry, clients, operator_requests
        self._asked: Counter[str] = Counter()
        self.under_way = 0
        self.models = (settings.run.id, POLICY)
        self.began = int(time.time())

    async def pieces(self, body: ChatBody) -> AsyncGenerator[pb.ChatPiece, None]:
        """The pieces of an answer, from the first replica that does not refuse. Raises ChatRefusedError."""
        if self.under_way >= self._table.at_once:
            raise ChatRefusedError(429, f"{self.under_way} chats are in progress here", "busy", retry_s=_RETRY_S)
        self.under_way += 1
        try:
            async with aclosing(self._from_anyone(body)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self.under_way -= 1

    async def _from_anyone(self, body: ChatBody) -> AsyncGenerator[pb.ChatPiece, None]:
        end = time.monotonic() + self._table.wait_s
        tried: set[str] = set()
        refusal = ChatRefusedError(503, "no replica serves the policy now", "no_weights", retry_s=_RETRY_S)
        while True:
            replica = self._choose(tried)
            if replica is None:
                if self._asleep():
                    raise ChatRefusedError(
                        503, "the engines sleep while the trainer steps", "sleeping", retry_s=_ASLEEP_S
                    )
                if tried or time.monotonic() > end:
                    raise refusal
                await asyncio.sleep(min(_POLL_S, max(end - time.monotonic(), 0.0)))
                continue
            tried.add(replica.replica_id)
            left = max(end - time.monotonic(), _POLL_S)
            request = to_wire(body, self._stop_token_ids, deadline_s=self._table.deadline_s, wait_s=left)
            said = False
            async with aclosing(self._ask(replica, request)) as pieces:
                async for piece in pieces:
                    if piece.HasField("refusal"):
                        refusal = _refused(piece.refusal)
                        if said or piece.refusal.kind not in _ELSEWHERE:
                            raise refusal
                        break
                    said = True
                    yield piece
            if said:
                return

    def _asleep(self) -> bool:
        """Whether all live replicas have given their GPUs to the trainer."""
        states = {one.state for one in self._registry.alive(time.monotonic())}
        return states == {orchestrator_pb2.REPLICA_STATE_SLEEPING}

    def _choose(self, tried: set[str]) -> Replica | None:
        """The least busy serving replica, without those tried before and those being drained."""
        serving = [
            one
            for one in self._registry.alive(time.monotonic())
            if one.state in (orchestrator_pb2.REPLICA_STATE_SERVING, orchestrator_pb2.REPLICA_STATE_UPDATING)
            and one.replica_id not in tried
            and one.replica_id not in self._operator_requests.drained
        ]
        busy = orchestrator_pb2.REPLICA_STATE_UPDATING
        return min(
            serving,
            key=lambda one: (one.state == busy, self._asked[one.replica_id], one.beat.in_flight_groups, one.replica_id),
            default=None,
        )

    async def _ask(self, replica: Replica, request: pb.ChatRequest) -> AsyncGenerator[pb.ChatPiece, None]:
        self._asked[replica.replica_id] += 1
        call = self._clients.rollout(replica.address).Chat(
            request, timeout=request.deadline_s + _GRACE_S, metadata=metadata()
        )
        try:
            async for piece in call:
                yield piece
        except grpc.aio.AioRpcError as error:
            reason = f"{replica.replica_id} does not answer: {error.details()}"
            yield pb.ChatPiece(refusal=pb.ChatRefusal(kind=pb.ChatRefusal.KIND_UNAVAILABLE, reason=reason))
        finally:
            call.cancel()
            self._asked[replica.replica_id] -= 1


def add_chat(app: FastAPI, chat: ChatRoutes) -> None:
    """Adds the routes; access control and the size of bodies are left to the app's guard."""

    @app.get("/v1/models", responses=chat_refusals(401))
    async def get_models() -> Response:
        """The policy, under both of its names."""
        return JSONResponse(models(chat.models, chat.began))

    @app.post("/v1/chat/completions", responses=_REFUSALS, openapi_extra=body_schema(ChatBody))
    async def post_chat(request: Request) -> Response:
        """An answer of the current policy; `stream: true` returns server-sent events."""
        try:
            body = read_chat(await request.body(), chat.models)
            form = ChatObjects(f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), body.model or chat.models[0])
            if body.stream:
                return await _stream(chat.pieces(body), form, with_usage=body.stream_options.include_usage)
            return await _whole(chat.pieces(body), form)
        except ChatRefusedError as refused:
            return _as_json(refused)


async def _whole(pieces: AsyncGenerator[pb.ChatPiece, None], form: ChatObjects) -> Response:
    async with aclosing(pieces):
        found = [piece async for piece in pieces]
    message = {"role": "assistant", "content": "".join(piece.text for piece in found), "refusal": None}
    last = found[-1]
    return JSONResponse(form.completion(message, last.finish_reason, _usage(last) | _origin(last)))


async def _stream(
    pieces: AsyncGenerator[pb.ChatPiece, None], form: ChatObjects, *, with_usage: bool
) -> StreamingResponse:
    """Waits for the first piece before it answers: until then a refusal can still set the HTTP status."""
    first = await anext(pieces)

    async def events() -> AsyncIterator[str]:
        async with aclosing(pieces):
            last = first
            yield form.delta({"role": "assistant", "content": ""}, None, _head(first)) + _events(form, first)
            try:
                async for last in pieces:
                    yield _events(form, last)
            except ChatRefusedError as refused:
                yield event(refused.body())
                return
            if with_usage:
                yield form.last(_usage(last) | _head(last))
            yield DONE

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def _events(form: ChatObjects, piece: pb.ChatPiece) -> str:
    """The events of one piece; the finish reason is an event of its own."""
    events = form.delta({"content": piece.text}, None, _head(piece)) if piece.text else ""
    if piece.finish_reason:
        events += form.delta({}, piece.finish_reason, _origin(piece))
    return events


def _usage(last: pb.ChatPiece) -> dict[str, object]:
    return {"usage": usage(last.prompt_tokens, last.completion_tokens)}


def _head(piece: pb.ChatPiece) -> dict[str, object]:
    return {"system_fingerprint": str(VERSION.from_pb(piece.version))}


def _origin(last: pb.ChatPiece) -> dict[str, object]:
    """Extension field: the replica that answered, and its oldest and newest version if the weights changed."""
    versions = sorted({str(VERSION.from_pb(one)) for one in (last.oldest_version, last.version)})
    return {**_head(last), "headrace": {"replica": last.replica_id, "versions": versions}}


def _refused(refusal: pb.ChatRefusal) -> ChatRefusedError:
    status, code, retry_s = _STATUS.get(refusal.kind, (500, "failed", 0))
    return ChatRefusedError(status, refusal.reason, code, retry_s=retry_s)


def _as_json(refused: ChatRefusedError) -> JSONResponse:
    headers = {"Retry-After": str(refused.retry_s)} if refused.retry_s else {}
    return JSONResponse(refused.body(), refused.status, headers=headers)
