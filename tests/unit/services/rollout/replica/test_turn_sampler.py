"""Turns of episodes on one replica: refused at once without room, answered through an open gate only."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY

from headrace.services.rollout.engines.protocol import AbandonedError, Completion, GenerateRequest, GenerationError
from headrace.services.rollout.replica.capacity import RowPool
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.replica.turn_sampler import TurnSampler
from headrace.wire.contracts import FinishReason, PolicyVersion, Sampling, VersionSpan
from headrace.wire.contracts.arrays import floats_from_bytes, ids_from_bytes, ids_to_bytes
from headrace.wire.contracts.codec import SAMPLING, SPAN
from headrace.wire.errors import ContractError, ExhaustedError, TransientError
from headrace.wire.rundir.events import EventLog
from headrace.wire.v1 import message_pb2
from headrace.wire.v1 import rollout_pb2 as pb
from tests.virtual_time import run_in_own_time
from tests.waiting import until_async

VERSION = PolicyVersion(incarnation=1, version=3)


class HeldEngine:
    """Answers when it is let; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[GenerateRequest] = []
        self.cancelled: list[str] = []
        self.may = asyncio.Event()
        self.error: Exception | None = None
        self.cached_tokens: int | None = None

    def stats(self) -> Any:
        return SimpleNamespace(waiting=0)

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        self.asked.append(request)
        try:
            await self.may.wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.group_id)
            raise
        if self.error is not None:
            raise self.error
        ids = np.array([request.seeds[0] % 7, 1], np.int32)
        span = VersionSpan(start=0, end=2, version=VERSION, weights_digest="d")
        logprobs = np.array([-0.5, -0.25], np.float32)
        done = Completion(
            token_ids=ids,
            logprobs=logprobs,
            finish_reason=FinishReason.STOP,
            spans=(span,),
            cached_tokens=self.cached_tokens,
        )
        return (done,)


class Replica:
    def __init__(self, folder: Path, *, rows: int = 4, group_rows: int = 2) -> None:
        self.gate, self.engine = Gate(), HeldEngine()
        engine: Any = self.engine
        self.rows = RowPool(rows, group_rows)
        self.generator = GroupGenerator(
            *(engine, self.gate, EventLog(folder, "rollout-0", "a"), lambda _: ""),
            replica_id="rollout-0",
            limit=lambda share: 4,
            rows=self.rows,
            share=1.0,
            hold_s=1.0,
        )
        self.sampler = TurnSampler(engine, self.gate, self.generator, replica_id="rollout-0")
        self.gate.move(ReplicaState.PENDING_WEIGHTS)
        self.publish()
        self.commit()

    def publish(self) -> None:
        self.gate.move(ReplicaState.UPDATING)

    def commit(self) -> None:
        self.gate.commit(Serving(VERSION, "d"))

    def begin(self, turn: int = 0, **others: Any) -> "asyncio.Task[pb.SampleResponse]":
        return asyncio.create_task(self.sampler.sample(request(turn, **others)))


def request(turn: int = 0, **others: Any) -> pb.SampleRequest:
    fields: dict[str, Any] = {"deadline_s": 30.0, "context_ids": ids_to_bytes(np.array([5, 6], np.int32)), **others}
    sampling = SAMPLING.to_pb(Sampling(max_tokens=8, seed=11))
    return pb.SampleRequest(rollout_id="r/g0/1", attempt=2, turn=turn, sampling=sampling, **fields)


def outcomes(outcome: str) -> float:
    return REGISTRY.get_sample_value("headrace_rollout_sampled_turns_total", {"outcome": outcome}) or 0.0


async def test_a_turn_is_one_call_of_the_engine_and_its_answer_names_versions_and_replica(tmp_path: Path) -> None:
    replica, before = Replica(tmp_path), outcomes("sampled")
    replica.engine.may.set()
    answer = await replica.begin(3)
    (asked,) = replica.engine.asked
    assert asked.group_id == "r/g0/1/2.3" and asked.token_ids.tolist() == [5, 6] and asked.seeds == (11,)
    assert ids_from_bytes(answer.token_ids).tolist() == [4, 1] and answer.replica_id == "rollout-0"
    assert floats_from_bytes(answer.logprobs).tolist() == [-0.5, -0.25]
    assert [span.version for span in map(SPAN.from_pb, answer.spans)] == [VERSION]
    assert outcomes("sampled") == before + 1 and replica.rows.turns == 0


async def test_an_answer_reports_the_cached_context_tokens_if_the_engine_does(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.engine.may.set()
    assert not (await replica.begin()).HasField("cached_tokens")
    for count in (0, 2):
        replica.engine.cached_tokens = count
        answer = await replica.begin()
        assert answer.HasField("cached_tokens") and answer.cached_tokens == count


async def test_a_replica_without_a_free_row_refuses_at_once_and_asks_its_engine_nothing(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    running = [replica.begin(turn) for turn in range(4)]
    await until_async(lambda: len(replica.engine.asked) == 4)
    assert replica.generator.free_rows == 0 and replica.generator.capacity(0) == 2
    with pytest.raises(ExhaustedError, match="rollout-0 has no free row"):
        await replica.begin(4)
    assert len(replica.engine.asked) == 4
    replica.engine.may.set()
    await asyncio.gather(*running)
    assert replica.generator.free_rows == 4


def test_groups_and_turns_do_not_starve_each_other() -> None:
    rows = RowPool(8, 2)
    assert [rows.free(groups) for groups in (0, 1, 2, 3, 100)] == [8, 6, 4, 4, 4]
    rows.turns = 3
    assert [rows.free(groups) for groups in (0, 2, 100)] == [5, 1, 1]
    assert RowPool(1, 4).free(5) == 1


async def test_an_answer_waits_for_the_publication_that_began_meanwhile(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    turn = replica.begin()
    await until_async(lambda: replica.engine.asked)
    replica.publish()
    replica.engine.may.set()
    done, _ = await asyncio.wait({turn}, timeout=0.05)
    assert not done
    replica.commit()
    assert (await turn).replica_id == "rollout-0"


async def test_tokens_of_weights_that_were_not_verified_never_leave(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    turn = replica.begin()
    await until_async(lambda: replica.engine.asked)
    replica.publish()
    replica.engine.may.set()
    await asyncio.sleep(0)
    replica.gate.disown(ReplicaState.QUARANTINED, "another digest")
    with pytest.raises(TransientError, match="rollout-0 is"):
        await turn


@pytest.mark.parametrize("state", ["older", "draining", "drained", "asleep"])
async def test_turns_that_this_replica_cannot_answer_are_rejected_at_once(tmp_path: Path, state: str) -> None:
    replica, asked = Replica(tmp_path), request()
    match state:
        case "older":
            asked = request(min_version=4)
        case "draining":
            replica.generator.retire()
        case "drained":
            replica.generator.drained = True
        case "asleep":
            replica.gate.disown(ReplicaState.SLEEPING, "the GPU is the trainer's")
    before = outcomes("refused")
    with pytest.raises(TransientError) as caught:
        await replica.sampler.sample(asked)
    assert not isinstance(caught.value, ExhaustedError) and not replica.engine.asked
    assert outcomes("refused") == before + 1 and replica.rows.turns == 0


def test_the_deadline_passes_only_while_the_gate_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def late() -> float:
        replica, loop = Replica(tmp_path), asyncio.get_running_loop()
        begin = loop.time()
        turn = replica.begin(deadline_s=10.0)
        await asyncio.sleep(4)
        replica.publish()
        await asyncio.sleep(100)
        replica.commit()
        before, answer = outcomes("late"), await turn
        assert answer.finish_reason == message_pb2.FINISH_REASON_TIME and not answer.token_ids and answer.replica_id
        assert outcomes("late") == before + 1
        assert replica.engine.cancelled == ["r/g0/1/2.0"] and replica.rows.turns == 0
        return loop.time() - begin

    assert run_in_own_time(late, monkeypatch) == pytest.approx(110.0)


async def test_a_caller_that_leaves_frees_the_row_and_the_engine(tmp_path: Path) -> None:
    replica, before = Replica(tmp_path), outcomes("broken_off")
    turn = replica.begin()
    await until_async(lambda: replica.engine.asked)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    assert replica.engine.cancelled == ["r/g0/1/2.0"] and replica.rows.turns == 0
    assert outcomes("broken_off") == before + 1


@pytest.mark.parametrize(
    ("error", "wanted"),
    [(AbandonedError("an update"), TransientError), (GenerationError("logits are not finite"), ContractError)],
)
async def test_an_engine_error_maps_to_a_retryable_or_final_error(
    tmp_path: Path, error: Exception, wanted: type[Exception]
) -> None:
    replica = Replica(tmp_path)
    replica.engine.error = error
    replica.engine.may.set()
    with pytest.raises(wanted, match=str(error)):
        await replica.begin()
