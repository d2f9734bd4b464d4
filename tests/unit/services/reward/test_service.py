"""The reward service on a stream and over gRPC: same scores, failures are failures."""

import asyncio
import threading
import time

import pytest

from services.reward.rubric import Rubric
from services.reward.scorers import registry
from services.reward.service import SERVICE_NAME, GroupScorer, RewardServicer
from services.reward.settings import ScorerTable
from tests import builders
from wire.contracts import DropReason, Message, Purpose, RolloutGroup, ScoredGroup, Tombstone, decode, encode
from wire.contracts.codec import group_to_pb
from wire.errors import WaitTimeoutError
from wire.rpc import call, channel, serve
from wire.streams import StreamName
from wire.streams.memory import MemoryBroker
from wire.streams.worker import Worker
from wire.v1 import reward_pb2, reward_pb2_grpc


def scorer() -> GroupScorer:
    return GroupScorer(Rubric([ScorerTable(name="exact_match")]), timeout_s=5)


async def run_until(broker: MemoryBroker, streams: list[StreamName], count: int) -> list[Message]:
    worker = Worker(
        broker,
        StreamName.ROLLOUTS,
        "reward-0",
        scorer().handle,
        service="reward",
        lease_s=5,
        capacity=lambda in_flight: 4 - in_flight,
        failure=DropReason.SCORER_FAILED,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    for _ in range(500):
        found = [data for stream in streams for data in await broker.live(stream)]
        if len(found) >= count:
            break
        await asyncio.sleep(0.01)
    stop.set()
    await task
    return [decode(data) for data in found]


async def test_a_group_is_scored_and_an_evaluation_goes_its_own_way() -> None:
    broker = MemoryBroker()
    await broker.add(
        StreamName.ROLLOUTS, encode(Message(header=builders.header(0), body=builders.group(0, answer="3")))
    )
    held_out = Message(header=builders.header(1, purpose=Purpose.EVAL), body=builders.group(1, answer="4"))
    await broker.add(StreamName.ROLLOUTS, encode(held_out))
    await run_until(broker, [StreamName.SCORED, StreamName.EVALUATED], 2)
    (scored,) = [decode(data) for data in await broker.live(StreamName.SCORED)]
    (evaluated,) = [decode(data) for data in await broker.live(StreamName.EVALUATED)]
    assert isinstance(scored.body, ScoredGroup)
    assert [score.value for score in scored.body.scores] == [1.0, 1.0]
    assert isinstance(evaluated.body, ScoredGroup)
    assert [score.value for score in evaluated.body.scores] == [0.0, 0.0]


async def test_a_scorer_that_keeps_failing_buries_the_group_after_three_tries() -> None:
    broker = MemoryBroker()
    await broker.add(StreamName.ROLLOUTS, encode(Message(header=builders.header(0), body=builders.group(0))))
    (end,) = await run_until(broker, [StreamName.SCORED], 1)
    assert isinstance(end.body, Tombstone)
    assert end.body.reason is DropReason.SCORER_FAILED
    assert "answer" in end.body.detail
    assert len(await broker.live(StreamName.DEAD)) == 1
    assert await broker.live(StreamName.ROLLOUTS) == []


async def test_a_damaged_message_is_buried_at_once_and_the_next_one_still_scored() -> None:
    broker = MemoryBroker()
    good = encode(Message(header=builders.header(1), body=builders.group(1, answer="3")))
    bad = bytearray(encode(Message(header=builders.header(0), body=builders.group(0, answer="3"))))
    bad[-3] ^= 1
    await broker.add(StreamName.ROLLOUTS, bytes(bad))
    await broker.add(StreamName.ROLLOUTS, good)
    ends = await run_until(broker, [StreamName.SCORED], 2)
    by_index = {end.header.group_index: end.body for end in ends}
    assert isinstance(by_index[0], Tombstone)
    assert by_index[0].reason is DropReason.POISON
    assert isinstance(by_index[1], ScoredGroup)


class Sleeper:
    """A scorer that takes its time for each group."""

    def __init__(self, value: float, *, exclusive: bool = False) -> None:
        self.exclusive = exclusive
        self.most = 0
        """Groups that were in it at once."""
        self._value, self._inside = value, 0
        self._count, self._forward = threading.Lock(), threading.Lock()

    def __call__(self, group: RolloutGroup) -> list[float]:
        with self._count:
            self._inside += 1
            self.most = max(self.most, self._inside)
        if self.exclusive:
            with self._forward:
                time.sleep(0.2)
        else:
            time.sleep(0.2)
        with self._count:
            self._inside -= 1
        return [self._value] * len(group.rollouts)


async def test_a_groups_deadline_begins_when_a_scorer_of_one_group_at_a_time_turns_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, judge = Sleeper(1.0, exclusive=True), Sleeper(0.5)
    monkeypatch.setitem(registry.GROUP_BUILT_IN, "model", lambda: model)
    monkeypatch.setitem(registry.GROUP_BUILT_IN, "judge", lambda: judge)
    rubric = Rubric([ScorerTable(name="model", weight=2.0), ScorerTable(name="judge")])
    service = GroupScorer(rubric, timeout_s=1.0)
    groups = [builders.group(index) for index in range(7)]
    found = await asyncio.gather(*(service.score(group) for group in groups))
    assert found == [rubric.score(group) for group in groups]
    assert found[0][0].components == {"model": 1.0, "judge": 0.5} and found[0][0].value == 2.5
    assert model.most == 1 and judge.most > 1


async def test_a_scorer_of_one_group_at_a_time_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.GROUP_BUILT_IN, "model", lambda: Sleeper(1.0, exclusive=True))
    service = GroupScorer(Rubric([ScorerTable(name="model")]), timeout_s=0.05)
    with pytest.raises(WaitTimeoutError, match="the scorers model"):
        await service.score(builders.group())


async def test_grpc_gives_the_same_scores_and_tells_a_failure() -> None:
    server = await serve({SERVICE_NAME: RewardServicer(scorer()).add_to}, "127.0.0.1", 0)
    link = channel(f"127.0.0.1:{server.port}")
    stub = reward_pb2_grpc.RewardServiceStub(link)
    request = reward_pb2.ScoreRequest(group=group_to_pb(builders.group(answer="3")))
    answer = await call(stub.Score, request, timeout_s=5, what="scores")
    assert [score.value for score in answer.scores] == [1.0, 1.0]
    broken = reward_pb2.ScoreRequest(group=group_to_pb(builders.group()))
    with pytest.raises(RuntimeError, match="no column 'answer'"):
        await call(stub.Score, broken, timeout_s=5, what="scores")
    await link.close()
    await server.stop()
