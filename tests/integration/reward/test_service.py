"""The reward service on a stream and over gRPC: same scores; what cannot be scored is never a zero."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from headrace.services.reward.request_limiter import RequestLimiter
from headrace.services.reward.rubric.circuit import ScorerOutageError
from headrace.services.reward.rubric.rubrics import Rubrics
from headrace.services.reward.scorer import Sample, ScorerDownError, Verdict
from headrace.services.reward.service import SERVICE_NAME, GroupScorer, RewardServicer
from headrace.wire.contracts import DropReason, Message, Purpose, RolloutGroup, ScoredGroup, Tombstone, decode, encode
from headrace.wire.contracts.codec import GROUP
from headrace.wire.errors import TransientError
from headrace.wire.peers.rpc import call, channel, serve
from headrace.wire.streams import StreamName
from headrace.wire.streams.worker import Worker
from headrace.wire.v1 import reward_pb2, reward_pb2_grpc
from tests import builders
from tests.memory_broker import MemoryBroker
from tests.reward_scorers import install, rubrics, scripted

ENDS = [StreamName.SCORED, StreamName.EVALUATED]


class Down:
    """A scorer that can be taken down; while it is up, the first rollout of a group scores 0, the next 1, ..."""

    def __init__(self) -> None:
        self.is_down = True
        self.asked = 0

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        self.asked += 1
        if self.is_down:
            raise ScorerDownError("connection refused")
        return [float(number) for number in range(len(samples))]


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> Down:
    found = Down()
    install(
        monkeypatch,
        down=found,
        index=lambda samples: [float(number) for number in range(len(samples))],
        mates=lambda samples: [float(sum(one.group == other.group != "" for other in samples)) for one in samples],
        nobody=lambda samples: [Verdict.abstain("unreadable")] * len(samples),
        first=lambda samples: [1.0, *[Verdict.abstain("unreadable")] * (len(samples) - 1)],
        mixed=lambda samples: [
            Verdict(value=0.5, token_scores=np.full(len(samples[0].completion_ids), 0.25, np.float32)),
            1.0,
            Verdict.abstain("unreadable"),
        ],
    )
    return found


async def add(broker: MemoryBroker, index: int, body: RolloutGroup, purpose: Purpose = Purpose.TRAIN) -> None:
    message = Message(header=builders.header(index, purpose=purpose), body=body)
    await broker.add(StreamName.ROLLOUTS, encode(message))


class Stage:
    """The service's worker on a stream in memory."""

    def __init__(self, made: Rubrics) -> None:
        self.broker, self.stop = MemoryBroker(), asyncio.Event()
        self.scorer = GroupScorer(made)
        self.worker = Worker(
            self.broker,
            StreamName.ROLLOUTS,
            "reward-0",
            self.scorer.handle,
            service="reward",
            lease_s=5,
            capacity=lambda in_flight: self.scorer.capacity(in_flight, 4),
            failure=DropReason.SCORER_FAILED,
        )

    async def run_until(self, count: int, seconds: float = 8.0) -> list[Message]:
        """The entries at the streams' ends, once there are so many."""
        task = asyncio.create_task(self.worker.run(self.stop))
        found: list[bytes] = []
        for _ in range(int(seconds * 100)):
            found = [data for stream in ENDS for data in await self.broker.live(stream)]
            if len(found) >= count:
                break
            await asyncio.sleep(0.01)
        self.stop.set()
        await task
        return [decode(data) for data in found]


async def test_a_group_is_scored_and_an_evaluation_goes_its_own_way(down: Down) -> None:
    stage = Stage(rubrics(scripted("mixed", weight=2.0)))
    await add(stage.broker, 0, builders.group(0, size=3))
    await add(stage.broker, 1, builders.group(1, size=3), Purpose.EVAL)
    await stage.run_until(2)
    for stream in ENDS:
        (end,) = [decode(data) for data in await stage.broker.live(stream)]
        assert isinstance(end.body, ScoredGroup)
        first, second, third = end.body.scores
        assert (first.value, second.value, third.value) == (1.0, 2.0, None) and third.reason == "mixed: unreadable"
        assert end.body.versions == {"mixed": "mixed@1"} and end.body.scorer_version
        assert second.components == {"mixed": 1.0} and "mixed" in second.seconds
        assert first.token_scores is not None
        assert first.token_scores.tolist() == [0.5] * len(end.body.group.rollouts[0].token_ids)


@pytest.mark.parametrize("script", ["nobody", "first"])
async def test_a_group_with_fewer_than_two_scored_rollouts_becomes_a_dead_letter(down: Down, script: str) -> None:
    stage = Stage(rubrics(scripted(script)))
    await add(stage.broker, 0, builders.group(0, size=3))
    (end,) = await stage.run_until(1)
    assert isinstance(end.body, Tombstone)
    assert end.body.reason is DropReason.ABSTAINED and "unreadable" in end.body.detail
    assert len(await stage.broker.live(StreamName.DEAD)) == 1


async def test_while_a_scorer_is_down_nothing_is_consumed_and_then_everything_is_scored(down: Down) -> None:
    stage = Stage(rubrics(scripted("down")))
    for index in range(6):
        await add(stage.broker, index, builders.group(index))
    running = asyncio.create_task(stage.run_until(6, seconds=12))
    await asyncio.sleep(1.5)
    assert [await stage.broker.live(stream) for stream in ENDS] == [[], []]
    assert len(await stage.broker.live(StreamName.ROLLOUTS)) == 6
    assert down.asked <= 12, "it was asked again and again while it was down"
    down.is_down = False
    ends = await running
    assert sorted(end.header.group_index for end in ends) == list(range(6))
    assert all(isinstance(end.body, ScoredGroup) for end in ends)
    assert stage.scorer.rubrics.trouble() is None


async def test_a_scorer_that_stays_down_ends_the_service_with_the_reason(down: Down) -> None:
    stage = Stage(rubrics(scripted("down"), outage_s=1.0))
    await add(stage.broker, 0, builders.group(0))
    task = asyncio.create_task(stage.worker.run(stage.stop))
    async with asyncio.timeout(60):
        outage = await stage.scorer.outage
    stage.stop.set()
    await task
    assert isinstance(outage, ScorerOutageError) and outage.final
    assert "down has been down" in str(outage) and "connection refused" in str(outage) and "--resume" in str(outage)
    assert len(await stage.broker.live(StreamName.ROLLOUTS)) == 1, "the group was lost"


async def test_a_damaged_message_is_buried_at_once_and_the_next_one_still_scored(down: Down) -> None:
    stage = Stage(rubrics(scripted("index")))
    header = replace(builders.header(0), attempt=2)  # Damaged for the third time.
    bad = bytearray(encode(Message(header=header, body=builders.group(0))))
    bad[-3] ^= 1
    await stage.broker.add(StreamName.ROLLOUTS, bytes(bad))
    await add(stage.broker, 1, builders.group(1))
    by_index = {end.header.group_index: end.body for end in await stage.run_until(2)}
    assert isinstance(by_index[0], Tombstone) and by_index[0].reason is DropReason.POISON
    assert isinstance(by_index[1], ScoredGroup)


async def test_grpc_gives_the_same_scores_and_reports_an_outage(down: Down) -> None:
    others = {"other": {"scorers": [scripted("down")]}, "group": {"scorers": [scripted("mates")]}}
    made = rubrics(scripted("index"), tasks=others)
    server = await serve({SERVICE_NAME: RewardServicer(GroupScorer(made), RequestLimiter(4, 5)).add_to}, "127.0.0.1", 0)
    link = channel(f"127.0.0.1:{server.port}")
    stub = reward_pb2_grpc.RewardServiceStub(link)
    request = reward_pb2.ScoreRequest(group=GROUP.to_pb(builders.group()))
    answer = await call(stub.Score, request, timeout_s=5, what="scores")
    assert [score.value for score in answer.scores] == [0.0, 1.0]
    assert dict(answer.versions) == {"index": "index@1"}
    grouped = reward_pb2.ScoreRequest(group=GROUP.to_pb(builders.group(data_source="group")))
    answer = await call(stub.Score, grouped, timeout_s=5, what="scores")
    assert [score.value for score in answer.scores] == [2.0, 2.0], "a group came apart"
    other = reward_pb2.ScoreRequest(group=GROUP.to_pb(builders.group(data_source="other")))
    with pytest.raises(TransientError, match="connection refused"):
        await call(stub.Score, other, timeout_s=5, what="scores")
    await link.close()
    await server.stop()
