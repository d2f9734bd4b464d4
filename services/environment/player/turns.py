"""Asks replicas for turns: the one that has the prefix first, another one where it is full, away or too old.

The call changes nothing on a replica, so it may be repeated anywhere: a turn has the same seed at each try, and the
first answer that arrives counts.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import numpy as np

from headrace.services.environment import metrics
from headrace.services.environment.child.frames import Json
from headrace.services.environment.player.replicas import ReplicaChoice, ReplicaDirectory
from headrace.wire import tracing
from headrace.wire.access.roles import Role
from headrace.wire.contracts import FinishReason, Header, PromptGroup, Turn, rollout_id, turn_seed
from headrace.wire.contracts.arrays import floats_from_bytes, ids_from_bytes, ids_to_bytes
from headrace.wire.contracts.codec import FINISH_FROM_PB, ID_LISTS, SAMPLING, SPAN
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ContractError, ExhaustedError, TransientError
from headrace.wire.peers.rpc import call, channel
from headrace.wire.process.lifecycle import within
from headrace.wire.telemetry.logs import get_logger
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
        with tracing.span("turn", turn=request.turn) as span:
            said = await self._sampled(request, seconds, preferred)
            span.set(replica=said.replica_id, tokens=len(said.turn.completion_ids), engine_seconds=said.engine_s)
            return said

    async def _sampled(self, request: pb.SampleRequest, seconds: float, preferred: str) -> SampledTurn:
        while True:
            place = self.directory.choose(request.min_version, preferred=preferred)
            if place is None:
                await within(self.directory.next_change(), _LOOK_S)  # Or until one that is avoided may be asked again.
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
                place.outage.failed(error)
            else:
                place.outage.over()
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

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = channel(address, Role.ROLLOUT)
        return self._channels[address]


def sample_request(
    prompt: PromptGroup,
    header: Header,
    index: int,
    *,
    turn: int,
    context_ids: TokenIds,
    max_tokens: int,
    stop_token_ids: Sequence[int],
    deadline_s: float,
) -> pb.SampleRequest:
    """The call of the engine for turn `turn` (from 0) of rollout `index`; `context_ids` is int32 [context].

    `stop_token_ids` end it beside those of the run's sampling.
    """
    sampling = SAMPLING.to_pb(prompt.sampling)
    sampling.max_tokens = max_tokens
    sampling.stop_token_ids.extend(one for one in stop_token_ids if one not in sampling.stop_token_ids)
    sampling.seed = turn_seed(prompt.sampling.seed, header.group_id, index, turn)
    sampling.greedy = prompt.sampling.greedy or index >= prompt.trained
    sampling.greedy_last = 0
    sampling.keeps_ids &= not sampling.greedy
    return pb.SampleRequest(
        rollout_id=rollout_id(header.group_id, index),
        attempt=header.attempt,
        turn=turn,
        context_ids=ids_to_bytes(context_ids),
        sampling=sampling,
        min_version=prompt.min_version,
        deadline_s=deadline_s,
    )


def note_of(said: SampledTurn, seconds: float) -> Json:
    """What is known of a turn beside its text, for people."""
    versions = sorted({str(span.version) for span in said.turn.spans})
    return {"seconds": round(seconds, 4), "replica": said.replica_id, "versions": versions}


def count_turn(said: SampledTurn, seconds: float, before: Turn | None) -> None:
    """Counts a turn that took so many seconds; `before`: the turn that it continues on the same replica."""
    metrics.TURNS.inc()
    metrics.TURN_SECONDS.labels("engine").observe(said.engine_s)
    metrics.TURN_SECONDS.labels("wire").observe(max(seconds - said.engine_s, 0.0))
    if before is not None:
        _count_prefix(said, before)


def _count_prefix(said: SampledTurn, before: Turn) -> None:
    """Counts what the engine computed again of a context that it had: it drops all that it kept with the weights."""
    now = said.turn
    if said.cached_tokens is None or len({span.version for span in (*before.spans[-1:], *now.spans)}) > 1:
        return
    # The last token was sampled, and never read.
    had = np.concatenate([before.context_ids, before.completion_ids])[:-1]
    length = min(len(had), len(now.context_ids))
    differs = np.flatnonzero(had[:length] != now.context_ids[:length])
    known = int(differs[0]) if len(differs) else length
    metrics.PREFIX_TOKENS.labels("known").inc(known)
    metrics.PREFIX_TOKENS.labels("cached").inc(min(said.cached_tokens, known))


@contextmanager
def _counted(place: ReplicaChoice) -> Iterator[None]:
    place.in_flight += 1
    place.taken += 1
    try:
        yield
    finally:
        place.in_flight -= 1


def _read(request: pb.SampleRequest, answer: pb.SampleResponse) -> SampledTurn:
    """The answer as a turn. Raises TurnLateError, and ContractError for an answer that breaks the contract."""
    if answer.finish_reason not in FINISH_FROM_PB:
        raise ContractError("bad_finish_reason", f"{request.rollout_id}: {answer.finish_reason}")
    if FINISH_FROM_PB[answer.finish_reason] is FinishReason.TIME:
        raise TurnLateError(answer.replica_id)
    turn = Turn(
        context_ids=ids_from_bytes(request.context_ids),
        completion_ids=ids_from_bytes(answer.token_ids),
        logprobs=floats_from_bytes(answer.logprobs),
        finish_reason=FINISH_FROM_PB[answer.finish_reason],
        spans=tuple(map(SPAN.from_pb, answer.spans)),
        kept=ID_LISTS.from_pb(answer.kept) if answer.HasField("kept") else None,
    )
    cached = answer.cached_tokens if answer.HasField("cached_tokens") else None
    return SampledTurn(turn=turn, replica_id=answer.replica_id, engine_s=answer.engine_s, cached_tokens=cached)
