"""The gRPC and stream faces of the reward service: translate, delegate, translate back."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import grpc

from services.reward import metrics
from services.reward.rubric import Rubric
from wire.contracts import Message, Purpose, RolloutGroup, Score, ScoredGroup, encode
from wire.contracts.codec import group_from_pb
from wire.contracts.score_codec import score_to_pb
from wire.errors import ContractError
from wire.events import EventLog
from wire.lifecycle import wait_for
from wire.streams import Put, StreamName
from wire.telemetry import trace_id
from wire.v1 import reward_pb2 as pb
from wire.v1 import reward_pb2_grpc

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["RewardService"].full_name


class GroupScorer:
    """Runs the rubric off the event loop, with a deadline.

    Scorers that take one group at a time have a deadline of their own, from the group's turn on.
    """

    def __init__(self, rubric: Rubric, timeout_s: float, events: EventLog | None = None) -> None:
        self.rubric = rubric
        self._events = events
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()

    async def score(self, group: RolloutGroup) -> tuple[Score, ...]:
        """Scores of one group; raises WaitTimeoutError, or what a scorer raises."""
        begin = time.monotonic()
        found = await self._values(group, exclusive=False)
        # No longer than the groups before it take, each of which has a deadline.
        async with self._turn:
            found |= await self._values(group, exclusive=True)
        scores = self.rubric.combine(group, found)
        metrics.SECONDS.observe(time.monotonic() - begin)
        metrics.ROLLOUTS.inc(len(scores))
        metrics.SCORE_MEAN.set(sum(score.value for score in scores) / len(scores))
        return scores

    async def _values(self, group: RolloutGroup, *, exclusive: bool) -> dict[str, Sequence[float]]:
        names = self.rubric.scorers(exclusive=exclusive)
        if not names:
            return {}
        scoring = asyncio.to_thread(self.rubric.values, group, exclusive=exclusive)
        return await wait_for(scoring, self._timeout_s, f"the scorers {', '.join(names)}")

    async def handle(self, message: Message) -> list[Put]:
        """A group of the `rollouts` stream becomes one of `scored`, or of `evaluated`."""
        if not isinstance(message.body, RolloutGroup):
            raise ContractError("wrong_body", f"{message.header.group_id}: the rollouts stream carries rollout groups")
        scores = await self.score(message.body)
        body = ScoredGroup(group=message.body, scores=scores, scorer_version=self.rubric.version)
        if self._events is not None:
            header = message.header
            trace = trace_id(header.traceparent)
            self._events.append("group_scored", group_id=header.group_id, attempt=header.attempt, trace=trace)
        end = StreamName.SCORED if message.header.purpose is Purpose.TRAIN else StreamName.EVALUATED
        return [Put(stream=end, data=encode(Message(header=message.header, body=body)))]


class RewardServicer(reward_pb2_grpc.RewardServiceServicer):
    """See `proto/wire/v1/reward.proto`."""

    def __init__(self, scorer: GroupScorer) -> None:
        self._scorer = scorer

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers itself on a server."""
        reward_pb2_grpc.add_RewardServiceServicer_to_server(self, server)

    async def Score(self, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:  # noqa: D102
        scores = await self._scorer.score(group_from_pb(request.group))
        version = self._scorer.rubric.version
        return pb.ScoreResponse(scores=[score_to_pb(score) for score in scores], scorer_version=version)

    async def ListScorers(self, request: pb.ListScorersRequest, context: Any) -> pb.ListScorersResponse:  # noqa: D102
        return pb.ListScorersResponse(names=self._scorer.rubric.names)
