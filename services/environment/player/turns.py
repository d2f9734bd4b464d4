"""Asks replicas for turns: the one that has the prefix first, another one where it is full, away or too old.

The call changes nothing on a replica, so it may be repeated anywhere: a turn has the same seed at each try, and the
first answer that arrives counts.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from headrace.services.environment import metrics
from headrace.services.environment.player.replicas import ReplicaChoice, ReplicaDirectory
from headrace.wire.contracts import FinishReason, Turn
from headrace.wire.contracts.arrays import floats_from_bytes, ids_from_bytes
from headrace.wire.contracts.sampling_codec import FINISH_FROM_PB, spans_from_pb
from headrace.wire.errors import ContractError, ExhaustedError, TransientError
from headrace.wire.rpc import call, channel
from headrace.wire.telemetry import get_logger
from headrace.wire.v1 import rollout_pb2 as pb
from headrace.wire.v1.rollout_pb2_grpc import RolloutServiceStub

log = get_logger("environment.turns")
_FULL_S = 0.05
_AWAY_S = 1.0
"""Pauses before a replica is asked again: one that was full, one that did not answer or could not."""
_LOOK_S = 0.05


class TurnLateError(Exception):
    """A replica's engine did not end a turn within its deadline."""

    def __init__(self, replica_id: str) -> None:
        super().__init__(replica_id)
        self.replica_id = replica_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTurn:
    """An answer of a replica."""

    turn: Turn
    replica_id: str
    engine_s: float
    """Seconds that the engine took."""
    cached_tokens: int | None
    """Tokens of the context that it had kept; None = it does not report them."""


@dataclass(slots=True)
class TurnClient:
    """Samples turns on the replicas of a directory."""

    directory: ReplicaDirectory
    _channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)

    async def sample(self, request: pb.SampleRequest, *, seconds: float, preferred: str = "") -> SampledTurn:
        """Asks until a replica has answered; `seconds` bound each call, the caller bounds the whole.

        A call of a replica that the orchestrator lists no more is given up: it may hang for good. Raises TurnLateError
        if the turn's own deadline passed, ContractError for a turn that no replica can sample.
        """
        while True:
            place = self.directory.choose(request.min_version, preferred=preferred)
            if place is None:
                await self._pause()
                continue
            try:
                with _counted(place):
                    answer = await self._ask(place, request, seconds)
            except ExhaustedError:
                place.avoid_until = time.monotonic() + _FULL_S
                metrics.TURN_RETRIES.labels("full").inc()
            except (TransientError, RuntimeError) as error:
                place.avoid_until = time.monotonic() + _AWAY_S
                metrics.TURN_RETRIES.labels("away").inc()
                log.info("turn_again", replica=place.replica_id, error=str(error))
            else:
                return _read(request, answer)

    async def _ask(self, place: ReplicaChoice, request: pb.SampleRequest, seconds: float) -> pb.SampleResponse:
        asking = asyncio.ensure_future(
            call(
                RolloutServiceStub(self._channel(place.address)).Sample,
                request,
                timeout_s=seconds,
                what=f"{place.replica_id} to sample turn {request.turn} of {request.rollout_id}",
            )
        )
        leaving = asyncio.ensure_future(self.directory.until_gone(place))
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise TransientError(f"{place.replica_id} is listed no more")
            return asking.result()
        finally:
            leaving.cancel()
            asking.cancel()
            await asyncio.gather(asking, leaving, return_exceptions=True)

    async def close(self) -> None:
        """Closes all channels."""
        for one in self._channels.values():
            await one.close()

    async def _pause(self) -> None:
        """Until the next list, or until a replica that is avoided may be asked again."""
        try:
            async with asyncio.timeout(_LOOK_S):
                await self.directory.next_change()
        except TimeoutError:
            return

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = channel(address)
        return self._channels[address]


@contextmanager
def _counted(place: ReplicaChoice) -> Iterator[None]:
    place.in_flight += 1
    place.taken += 1
    try:
        yield
    finally:
        place.in_flight -= 1


def _read(request: pb.SampleRequest, answer: pb.SampleResponse) -> SampledTurn:
    """The answer as a turn. Raises TurnLateError, and ContractError for what the contract forbids."""
    if answer.finish_reason not in FINISH_FROM_PB:
        raise ContractError("bad_finish_reason", f"{request.rollout_id}: {answer.finish_reason}")
    if FINISH_FROM_PB[answer.finish_reason] is FinishReason.TIME:
        raise TurnLateError(answer.replica_id)
    turn = Turn(
        context_ids=ids_from_bytes(request.context_ids),
        completion_ids=ids_from_bytes(answer.token_ids),
        logprobs=floats_from_bytes(answer.logprobs),
        finish_reason=FINISH_FROM_PB[answer.finish_reason],
        spans=spans_from_pb(answer.spans),
    )
    cached = answer.cached_tokens if answer.HasField("cached_tokens") else None
    return SampledTurn(turn=turn, replica_id=answer.replica_id, engine_s=answer.engine_s, cached_tokens=cached)
