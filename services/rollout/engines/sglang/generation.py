"""Generation of groups: one request per rollout, continued in parts if aborted; failed groups are handed back."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from headrace.services.rollout.engines.protocol import (
    AbandonedError,
    Begun,
    Completion,
    EngineStats,
    GenerateRequest,
    GenerationError,
)
from headrace.services.rollout.engines.sglang.admission import Admission
from headrace.services.rollout.engines.sglang.client import BAD_ANSWER, SGLangClient
from headrace.services.rollout.engines.sglang.requests import (
    Adapter,
    RequestResult,
    ServerLimits,
    check_request,
    generate_body,
    join_parts,
    read_part,
)
from headrace.wire.contracts import FinishReason, PolicyVersion
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.telemetry.logs import get_logger

log = get_logger("rollout.sglang")

_ABORT_S = 5.0
_AGAIN_S = 0.05
"""Pause before a request that was aborted without a token is sent again."""


@dataclass(slots=True, eq=False)
class _Group:
    """State of one group in progress."""

    given_up: "asyncio.Future[str]"
    group_id: str
    left: int
    """Rollouts that have not ended."""
    live: set[str] = field(default_factory=set)
    """Ids of its requests on the server."""
    oldest: int | None = None
    """Version of the oldest token in the parts received so far."""
    lengths: dict[int, int] = field(default_factory=dict)
    """Rollout -> number of tokens in the parts received so far."""

    def take(self, index: int, part: RequestResult) -> None:
        """Records a received part of one rollout."""
        self.lengths[index] = self.lengths.get(index, 0) + len(part.token_ids)
        versions = [version.version for _, version in part.spans]
        self.oldest = min([*versions, *([] if self.oldest is None else [self.oldest])], default=None)


@dataclass(slots=True)
class _Counters:
    generated: int = 0
    prompt: int = 0
    recomputed: int = 0
    busy_s: float = 0.0
    busy_since: float = 0.0


class Generation:
    """All requests of one engine."""

    def __init__(self, client: SGLangClient, limits: ServerLimits, *, max_rows: int, request_timeout_s: float) -> None:
        self._client = client
        self._limits = limits
        self._request_timeout_s = request_timeout_s
        # One slot is reserved for the canary.
        own = limits.max_requests - 1
        self.rows = max(min(max_rows or own, own), 1)
        """Most concurrent requests of rollouts."""
        self.admission = Admission(self.rows)
        self.digests: dict[PolicyVersion, str] = {}
        """Weights digest of every version that was installed."""
        self.salt = ""
        """Cache key: new requests share only prefixes computed under the same salt."""
        self.adapter: Adapter | None = None
        """The adapter for new requests, if adapters are published."""
        self.keeps_prefixes = False
        """Whether running requests keep their keys and values when the weights change."""
        self._users: Counter[str] = Counter()
        self._groups: set[_Group] = set()
        self._counters = _Counters()
        self._background: set[asyncio.Task[None]] = set()

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """Implements `Engine.generate`: one concurrent request per rollout."""
        most = check_request(request, self._limits)
        if not self.digests:
            raise AbandonedError("the engine has no weights yet")
        group = _Group(asyncio.get_running_loop().create_future(), request.group_id, left=len(request.seeds))
        self._enter(group)
        rollouts = [
            asyncio.create_task(self._rollout(group, request, index, most)) for index in range(len(request.seeds))
        ]
        whole = asyncio.gather(*rollouts)
        try:
            ends: list[asyncio.Future[Any]] = [whole, group.given_up]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if group.given_up.done():
                raise AbandonedError(group.given_up.result())
            return tuple(await whole)
        finally:
            for rollout in rollouts:
                rollout.cancel()
            await asyncio.gather(whole, *rollouts, return_exceptions=True)
            self._leave(group)

    def begun(self, group_id: str) -> Begun | None:
        """Implements `Engine.begun`. The server reports versions only with an answer, so the first part must be back.

        Requests stay on the server when full weights change (it retracts them itself); a new adapter interrupts them.
        """
        group = next((one for one in self._groups if one.group_id == group_id), None)
        if group is None or group.oldest is None:
            return None
        return Begun(oldest=group.oldest, lengths=tuple(group.lengths[index] for index in sorted(group.lengths)))

    def abandon(self, reason: str) -> None:
        """Abandons all running groups at once; their requests on the server are aborted in the background."""
        for group in self._groups:
            if not group.given_up.done():
                group.given_up.set_result(reason)

    async def interrupt(self, timeout_s: float) -> None:
        """Aborts all running requests; they return their tokens so far and are continued by new requests."""
        live = {request_id for group in self._groups for request_id in group.live}
        end = time.monotonic() + timeout_s
        for request_id in live:
            await self._client.abort(request_id, max(end - time.monotonic(), 0.001))

    def stats(self) -> EngineStats:
        """Implements `Engine.stats`; decode time is counted as the time with any group running."""
        counters = self._counters
        now = time.monotonic()
        busy = counters.busy_s + (now - counters.busy_since if self._groups else 0.0)
        return EngineStats(
            groups=len(self._groups),
            rollouts=self.admission.inside,
            waiting=max(sum(group.left for group in self._groups) - self.admission.inside, 0),
            generated_tokens=counters.generated,
            prompt_tokens=counters.prompt,
            recomputed_tokens=counters.recomputed,
            decode_seconds=busy,
            busy_seconds=busy,
        )

    async def close(self) -> None:
        """Abandons all groups and waits for background aborts."""
        self.abandon("the engine was closed")
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _rollout(self, group: _Group, request: GenerateRequest, index: int, most: int) -> Completion:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return await self._all_parts(group, request, index, most)
        except TimeoutError as error:
            raise AbandonedError(f"a rollout took longer than {self._request_timeout_s:.0f} s") from error
        except TransientError as error:
            raise AbandonedError(str(error)) from error
        except ContractError as error:
            match error.code:
                case "unauthorized":
                    raise AbandonedError(str(error)) from error
                case code if code == BAD_ANSWER:
                    # The prompt is not at fault, so it may be retried.
                    raise GenerationError(str(error)) from error
            raise
        finally:
            group.left -= 1

    async def _all_parts(self, group: _Group, request: GenerateRequest, index: int, most: int) -> Completion:
        parts: list[RequestResult] = []
        join = partial(join_parts, digests=self.digests, keeps_ids=request.keeps_ids(index))
        done: list[int] = []
        while True:
            part = await self._part(group, request, index, done, most)
            self._count(part, first=not parts, prompt=len(request.token_ids))
            group.take(index, part)
            if part.token_ids or not parts:
                parts.append(part)
            done += part.token_ids
            if len(done) > most:
                raise ContractError(BAD_ANSWER, f"/generate: {len(done)} tokens, {most} were requested")
            if part.finish_reason is None and part.token_ids and part.token_ids[-1] in request.sampling.stop_token_ids:
                # The answer of an aborted request does not report a stop at its last token.
                return join([*parts[:-1], replace(part, finish_reason=FinishReason.STOP)])
            full = len(done) == most or len(request.token_ids) + len(done) > self._limits.prompt_length
            if part.finish_reason is not None or full:
                return join(parts)
            if not part.token_ids:
                await asyncio.sleep(_AGAIN_S)

    async def _part(
        self, group: _Group, request: GenerateRequest, index: int, done: list[int], most: int
    ) -> RequestResult:
        async with self.admission.place(first=request.chat):
            request_id = uuid.uuid4().hex
            adapter = self.adapter
            body = generate_body(
                request, index, done, most, self._limits, request_id=request_id, salt=self.salt, adapter=adapter
            )
            group.live.add(request_id)
            with self._use(adapter):
                answer = await self._client.generate(body, self._request_timeout_s)
            group.live.discard(request_id)
        # With masks it takes up to a third of a second.
        return await asyncio.to_thread(read_part, answer, adapter, masked=request.keeps_ids(index))

    @contextmanager
    def _use(self, adapter: Adapter | None) -> Iterator[None]:
        name = adapter.name if adapter else ""
        self._users[name] += 1
        try:
            yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]

    def uses(self, adapter: str) -> bool:
        """Whether a request that uses this adapter is still unanswered."""
        return adapter in self._users

    def _count(self, part: RequestResult, *, first: bool, prompt: int) -> None:
        counters = self._counters
        counters.generated += len(part.token_ids)
        if first:
            counters.prompt += part.computed_tokens
        else:
            counters.recomputed += part.computed_tokens
        if not self.keeps_prefixes:
            counters.recomputed += sum(prompt + end for end, _ in part.spans[:-1])

    def _enter(self, group: _Group) -> None:
        if not self._groups:
            self._counters.busy_since = time.monotonic()
        self._groups.add(group)

    def _leave(self, group: _Group) -> None:
        self._groups.discard(group)
        if not self._groups:
            self._counters.busy_s += time.monotonic() - self._counters.busy_since
        group.given_up.cancel()
        if group.live:
            self._spawn(self._abort(group.live))

    async def _abort(self, request_ids: set[str]) -> None:
        """Aborts requests whose results are no longer needed."""
        try:
            async with asyncio.timeout(_ABORT_S):
                for request_id in request_ids:
                    await self._client.abort(request_id, _ABORT_S)
        except (TimeoutError, TransientError, ContractError) as error:
            log.info("abort_not_taken", requests=len(request_ids), error=str(error))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
