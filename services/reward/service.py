"""The gRPC and stream interfaces of the reward service: translate, delegate, translate back."""

import asyncio
import itertools
import time

import grpc

from headrace.services.reward import metrics
from headrace.services.reward.request_limiter import RequestLimiter
from headrace.services.reward.rubric.circuit import CircuitOpenError, ScorerOutageError
from headrace.services.reward.rubric.rubrics import Rubrics
from headrace.services.reward.rubric.samples import samples_of, scores_of
from headrace.wire import tracing
from headrace.wire.contracts import DropReason, Message, Purpose, RolloutGroup, Score, ScoredGroup, encode
from headrace.wire.contracts.codec import GROUP, SCORE
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.worker import HandBack, bury_puts
from headrace.wire.telemetry.logs import get_logger, trace_id
from headrace.wire.telemetry.metrics import DEAD_LETTERS
from headrace.wire.v1 import reward_pb2 as pb
from headrace.wire.v1 import reward_pb2_grpc

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["RewardService"].full_name
_LONGEST_PAUSE_S = 1.0
log = get_logger("reward")


class GroupScorer:
    """Scores groups of the stream. A scorer that is down holds the stream; nothing is scored 0 in its place."""

    def __init__(self, rubrics: Rubrics, events: EventLog | None = None) -> None:
        self.rubrics = rubrics
        self._events = events
        self.outage: asyncio.Future[ScorerOutageError] = asyncio.get_running_loop().create_future()
        """Done when a scorer has been down for too long: the run is to stop."""

    def capacity(self, in_flight: int, concurrency: int) -> int:
        """How many more groups may be taken: none while a scorer is down, a few when it is tried again."""
        room = self.rubrics.room()
        for slot in self.rubrics.slots:
            metrics.CIRCUIT_OPEN.labels(slot.name).set(bool(slot.circuit.trouble))
        wanted = concurrency - in_flight
        return wanted if room is None else min(wanted, max(0, room - in_flight))

    async def score(self, group: RolloutGroup, name: str, *, patient: bool) -> tuple[tuple[Score, ...], dict[str, str]]:
        """Scores of one group, and the versions of its scorers (of one that changed meanwhile, the last rollout's).

        Raises CircuitOpenError, ScorerOutageError (see `ScorerSlot.judge`).
        """
        begin = time.monotonic()
        samples = samples_of(group, name)
        results = await self.rubrics.score(samples, patient=patient) if samples else []
        scores = scores_of(group, results)
        values = [score.value for score in scores if score.value is not None]
        metrics.SECONDS.observe(time.monotonic() - begin)
        metrics.ROLLOUTS.inc(len(values))
        metrics.ABSTAINED.inc(len(scores) - len(values))
        if values:
            metrics.SCORE_MEAN.set(sum(values) / len(values))
        versions = self.rubrics.versions(group.prompt.columns, group.prompt.task)
        for result in results:
            versions |= result.versions
        return scores, versions

    async def handle(self, message: Message) -> list[Put]:
        """A group of the `rollouts` stream becomes one of `scored`, or of `evaluated`."""
        group, header = message.body, message.header
        if not isinstance(group, RolloutGroup):
            raise ContractError("wrong_body", f"{header.group_id}: the rollouts stream carries rollout groups")
        try:
            with tracing.span("score", header.traceparent, group_id=header.group_id) as span:
                scores, versions = await self.score(group, header.group_id, patient=True)
                span.set(**_seen(scores))
        except CircuitOpenError as error:
            raise HandBack(str(error), min(error.retry_s, _LONGEST_PAUSE_S)) from error
        except ScorerOutageError as error:
            if not self.outage.done():
                reason, line_end, trace = str(error).partition("\n")
                way_out = f"{reason}. Nothing was lost: fix it, then continue with --resume"
                self.outage.set_result(type(error)(f"{way_out}{line_end}{trace}"))
            raise HandBack(str(error), _LONGEST_PAUSE_S) from error
        body = ScoredGroup(
            group=group,
            scores=scores,
            scorer_version=self.rubrics.version(group.prompt.columns, versions, group.prompt.task),
            versions=versions,
        )
        self._report(message, scores)
        if header.purpose is Purpose.TRAIN and not body.is_trainable:
            DEAD_LETTERS.labels(StreamName.ROLLOUTS, DropReason.ABSTAINED).inc()
            return bury_puts(encode(message), DropReason.ABSTAINED, _why(scores), "reward")
        end = StreamName.SCORED if header.purpose is Purpose.TRAIN else StreamName.EVALUATED
        return [Put(stream=end, data=encode(Message(header=header, body=body)))]

    def _report(self, message: Message, scores: tuple[Score, ...]) -> None:
        header = message.header
        abstained = sum(score.value is None for score in scores)
        if abstained:
            log.warning("rollouts_abstained", group=header.group_id, count=abstained, why=_why(scores))
        if self._events is not None:
            trace = trace_id(header.traceparent)
            self._events.append("group_scored", group_id=header.group_id, attempt=header.attempt, trace=trace)


class RewardServicer(reward_pb2_grpc.RewardServiceServicer):
    """Implements the service of `proto/wire/v1/reward.proto`."""

    def __init__(self, scorer: GroupScorer, limiter: RequestLimiter) -> None:
        self._scorer, self._limiter = scorer, limiter
        self._calls = itertools.count(1)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers itself on a server."""
        reward_pb2_grpc.add_RewardServiceServicer_to_server(self, server)

    async def Score(self, request: pb.ScoreRequest, context: object) -> pb.ScoreResponse:  # noqa: D102
        group = GROUP.from_pb(request.group)
        try:
            async with self._limiter.one():
                scores, versions = await self._scorer.score(group, f"call {next(self._calls)}", patient=False)
        except ScorerOutageError as error:
            raise TransientError(str(error)) from error
        return pb.ScoreResponse(
            scores=[SCORE.to_pb(score) for score in scores],
            scorer_version=self._scorer.rubrics.version(group.prompt.columns, versions, group.prompt.task),
            versions=versions,
        )


def _seen(scores: tuple[Score, ...]) -> dict[str, float]:
    """Counts and mean of a group's scores, for its trace."""
    values = [score.value for score in scores if score.value is not None]
    mean = {"score_mean": sum(values) / len(values)} if values else {}
    return {"scored": len(values), "abstained": len(scores) - len(values)} | mean


def _why(scores: tuple[Score, ...]) -> str:
    """Reason of the first abstention."""
    return next((score.reason for score in scores if score.value is None), "") or "no reason given"
