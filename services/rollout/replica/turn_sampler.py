"""Samples turns of episodes: one call of the engine each, after a context that the caller sends whole.

Nothing is kept between two calls. An answer leaves only while the gate is open: its tokens are of verified weights, and
the caller may build on them. What cannot be answered here and now is refused at once, so that the caller can ask
another replica; only a publication in progress is waited for.
"""

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.services.rollout import metrics
from headrace.services.rollout.engines.protocol import (
    AbandonedError,
    Completion,
    Engine,
    GenerateRequest,
    GenerationError,
)
from headrace.services.rollout.replica.gate import UPDATE_S, Gate
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.wire.contracts import FinishReason, Sampling
from headrace.wire.contracts.arrays import floats_to_bytes, ids_from_bytes, ids_to_bytes
from headrace.wire.contracts.checks import check_ids
from headrace.wire.contracts.codec import FINISH_TO_PB, ID_LISTS, SAMPLING, SPAN
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ContractError, ExhaustedError, TransientError, WaitTimeoutError
from headrace.wire.v1 import rollout_pb2 as pb


class _LateError(Exception):
    """The engine did not end a turn within its deadline."""


class TurnSampler:
    """Answers `RolloutService.Sample`."""

    def __init__(self, engine: Engine, gate: Gate, generator: GroupGenerator, *, replica_id: str) -> None:
        """`generator` counts rows for groups and turns alike."""
        self._engine, self._gate, self._generator = engine, gate, generator
        self._replica_id = replica_id

    async def sample(self, request: pb.SampleRequest) -> pb.SampleResponse:
        """Samples one turn.

        One that its engine does not end within `deadline_s` is answered without a token, its finish reason is `time`.
        Raises ExhaustedError if all rows are taken; TransientError if no weights of `min_version` serve, the replica
        takes nothing more, or the engine abandoned the turn; ContractError for a request that no replica can serve.
        """
        context, sampling = _checked(request)
        begin = time.monotonic()
        try:
            with self._counted(), self._row():
                await self._ready(request.min_version)
                begin = time.monotonic()
                completion = await self._generate(request, context, sampling)
                seconds = time.monotonic() - begin
                await self._settled()
        except _LateError:
            return self._late(time.monotonic() - begin)
        self._generator.speed.observe(len(completion.token_ids), seconds)
        return pb.SampleResponse(
            token_ids=ids_to_bytes(completion.token_ids),
            logprobs=floats_to_bytes(completion.logprobs),
            finish_reason=FINISH_TO_PB[completion.finish_reason],
            spans=map(SPAN.to_pb, completion.spans),
            replica_id=self._replica_id,
            engine_s=seconds,
            cached_tokens=completion.cached_tokens,
            kept=None if completion.kept is None else ID_LISTS.to_pb(completion.kept),
        )

    def _late(self, seconds: float) -> pb.SampleResponse:
        reason = FINISH_TO_PB[FinishReason.TIME]
        return pb.SampleResponse(finish_reason=reason, replica_id=self._replica_id, engine_s=seconds)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        outcome = "broken_off"
        try:
            yield
            outcome = "sampled"
        except ExhaustedError:
            outcome = "full"
            raise
        except TransientError:
            outcome = "refused"
            raise
        except _LateError:
            outcome = "late"
            raise
        except Exception:
            outcome = "failed"
            raise
        finally:
            metrics.SAMPLED_TURNS.labels(outcome).inc()

    @contextmanager
    def _row(self) -> Iterator[None]:
        """Takes a row, or raises at once."""
        generator = self._generator
        if generator.retired or generator.drained:
            raise TransientError(f"{self._replica_id} is draining: it takes no more turns")
        if not generator.rows.free(generator.in_flight - generator.held):
            raise ExhaustedError(f"{self._replica_id} has no free row")
        generator.count_turn(1)
        try:
            yield
        finally:
            generator.count_turn(-1)

    async def _ready(self, min_version: int) -> None:
        await self._settled()
        if self._gate.version.version < min_version:
            raise TransientError(
                f"{self._replica_id} serves version {self._gate.version.version}, {min_version} is needed"
            )

    async def _settled(self) -> None:
        """Waits for a publication in progress to end; raises TransientError unless verified weights serve then."""
        if not await self._gate.settle():
            raise TransientError(f"{self._replica_id} is {self._gate.state}")

    async def _generate(self, request: pb.SampleRequest, context: TokenIds, sampling: Sampling) -> Completion:
        asked = GenerateRequest(
            group_id=f"{request.rollout_id}/{request.attempt}.{request.turn}",
            token_ids=context,
            seeds=(sampling.seed,),
            sampling=sampling,
        )
        generating = asyncio.ensure_future(self._engine.generate(asked))
        try:
            await self._wait(generating, request.deadline_s)
            (completion,) = generating.result()
        except AbandonedError as error:
            raise TransientError(f"{self._replica_id}: {error}") from error
        except GenerationError as error:
            raise ContractError("not_sampled", f"{request.rollout_id}: {error}") from error
        finally:
            generating.cancel()
            await asyncio.gather(generating, return_exceptions=True)
        return completion

    async def _wait(self, generating: "asyncio.Future[tuple[Completion, ...]]", seconds: float) -> None:
        """Returns when the engine is done; raises _LateError after `seconds` in which the gate was open."""
        left = seconds
        while not generating.done():
            is_open, begin = self._gate.is_open, time.monotonic()
            turning = asyncio.ensure_future(self._turned(is_open, left if is_open else UPDATE_S))
            both: set[asyncio.Future[Any]] = {generating, turning}
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                turning.cancel()
                await asyncio.gather(turning, return_exceptions=True)
            left -= (time.monotonic() - begin) * is_open
            if is_open and left <= 0 and not generating.done():
                raise _LateError

    async def _turned(self, was_open: bool, timeout_s: float) -> None:
        """Returns when the gate opens or closes, or after `timeout_s`."""
        try:
            await self._gate.wait_until(lambda: self._gate.is_open is not was_open, timeout_s, "the gate to turn")
        except WaitTimeoutError:
            return


def _checked(request: pb.SampleRequest) -> tuple[TokenIds, Sampling]:
    """Context and sampling of the request; raises ContractError for what the contract forbids."""
    context = ids_from_bytes(request.context_ids)
    check_ids(f"context of {request.rollout_id}", context)
    if not (math.isfinite(request.deadline_s) and request.deadline_s > 0):
        raise ContractError(
            "bad_deadline", f"{request.rollout_id}: deadline_s is {request.deadline_s}, must be above 0"
        )
    return context, SAMPLING.from_pb(request.sampling)
