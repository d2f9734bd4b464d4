"""Prompts are issued within credit, once; what got lost is issued again, what is trained never."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace.services.orchestrator.issuing import evaluation as evaluations
from headrace.services.orchestrator.issuing import issuer as issuers
from headrace.services.orchestrator.issuing.evaluation import Evaluation
from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream
from headrace.services.orchestrator.issuing.prompts import PromptRow
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.settings import EvalTable, OrchestratorSettings
from headrace.services.orchestrator.state.run_state import RunPhase, RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.config.settings import BatchTable, RunTable
from headrace.wire.contracts import (
    DropReason,
    Header,
    Message,
    PromptGroup,
    Purpose,
    Score,
    ScoredGroup,
    Tombstone,
    decode,
    encode,
    eval_group_id,
)
from headrace.wire.peers.rpc import serve
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import StreamName
from headrace.wire.v1 import common_pb2, trainer_pb2, trainer_pb2_grpc
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests import builders
from tests.memory_broker import MemoryBroker
from tests.waiting import until_async

ROWS = [
    PromptRow(sample_id=f"s{i}", token_ids=np.array([i + 1], np.int32), text=str(i), columns={"answer": "3"})
    for i in range(5)
]


class FateTeller(trainer_pb2_grpc.TrainerServiceServicer):
    def __init__(self) -> None:
        self.fates: list[common_pb2.Fate] = []

    async def GetFates(self, request: Any, context: Any) -> Any:
        return trainer_pb2.GetFatesResponse(fates=self.fates)


class Office:
    """An issuer with a store on disk and streams in memory."""

    def __init__(self, path: Path, *, staleness: int = 0) -> None:
        self.path = path
        self.settings = OrchestratorSettings(
            run=RunTable(id="test", seed=1, max_steps=5, max_staleness=staleness),
            batch=BatchTable(groups=3, group_size=2),
            run_dir=path,
            eval=(EvalTable(deadline_s=60),),
        )
        self.broker = MemoryBroker()
        self.teller = FateTeller()
        self.build()

    def build(self) -> None:
        """Also what a restart does: everything anew but disk and streams."""
        self.store = Store(self.path / "state.sqlite")
        self.state = RunState(self.store, max_steps=5)
        self.events = EventLog(self.path, "orchestrator", "x")
        self.prompts = PromptStream(self.broker, self.store)
        self.clients = Clients()
        self.issuer = Issuer(
            self.settings, ROWS, self.store, self.state, self.broker, self.prompts, self.clients, self.events
        )

    async def issued(self) -> list[Message]:
        return [decode(data) for data in await self.broker.live(StreamName.PROMPTS)]

    async def until_issued(self, count: int) -> None:
        await until_async(lambda: self.broker.streams[StreamName.PROMPTS].added >= count)

    async def trained(self, step: int, *indices: int) -> None:
        fates = [common_pb2.Fate(group_index=index, step=step) for index in indices]
        await self.state.report(pb.ReportProgressRequest(incarnation=1, version=step, fates=fates))


@asynccontextmanager
async def office(path: Path, *, staleness: int = 0) -> AsyncIterator[Office]:
    built = Office(path, staleness=staleness)

    def add(server: Any) -> None:
        trainer_pb2_grpc.add_TrainerServiceServicer_to_server(built.teller, server)

    server = await serve({"wire.v1.TrainerService": add}, "127.0.0.1", 0)
    await built.state.register_trainer(pb.RegisterTrainerRequest(address=f"127.0.0.1:{server.port}", boot_id="t"))
    yield built
    await built.clients.close()
    await server.stop(0)


@pytest.fixture(params=[0, 2])
def staleness(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


async def test_open_groups_never_exceed_the_credit(tmp_path: Path, staleness: int) -> None:
    async with office(tmp_path, staleness=staleness) as it:
        await it.issuer.issue()
        await it.issuer.issue()
        messages = await it.issued()
        assert [message.header.group_index for message in messages] == list(range(3 * (staleness + 1)))


async def test_trained_and_dropped_groups_free_credit_and_new_prompts_ask_for_the_new_version(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        await it.issuer.issue()
        await it.trained(1, 0, 1, 2)
        await it.issuer.issue()
        fresh = (await it.issued())[3:]
        assert [message.header.group_index for message in fresh] == [3, 4, 5]
        assert {message.body.min_version for message in fresh if isinstance(message.body, PromptGroup)} == {1}
        drop = [common_pb2.Fate(group_index=4, step=0, reason="poison")]
        await it.state.report(pb.ReportProgressRequest(incarnation=1, version=1, fates=drop))
        await it.issuer.issue()
        assert [message.header.group_index for message in (await it.issued())[6:]] == [6]


async def test_uninformative_groups_are_replaced_at_once_and_do_not_fail_the_run(
    tmp_path: Path, staleness: int
) -> None:
    async with office(tmp_path, staleness=staleness) as it:
        await it.issuer.issue()
        limit = 3 * (staleness + 1)
        for index in range(80):
            fates = [common_pb2.Fate(group_index=index, step=0, reason=DropReason.UNINFORMATIVE)]
            await it.state.report(pb.ReportProgressRequest(incarnation=1, version=0, fates=fates))
            await it.issuer.issue()
            assert [group.group_index for group in it.store.open_groups()] == [*range(index + 1, index + 1 + limit)]
        assert it.state.phase is RunPhase.RUNNING
        assert it.store.counts() == {"uninformative": 80, "open": limit}
        assert {message.body.min_version for message in await it.issued() if isinstance(message.body, PromptGroup)} == {
            0
        }


async def test_credit_freed_during_a_step_goes_to_groups_of_the_next_version(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        await it.issuer.issue()
        fates = [common_pb2.Fate(group_index=index, step=1) for index in (0, 1, 2)]
        await it.state.report(pb.ReportProgressRequest(incarnation=1, version=0, fates=fates))
        await it.issuer.issue()
        it.build()
        assert it.state.issue_version == 1
        assert it.state.phase is RunPhase.STARTING
        await it.state.report(pb.ReportProgressRequest(incarnation=1, version=0))
        assert it.state.phase is RunPhase.RUNNING
        fresh = (await it.issued())[3:]
        assert {message.body.min_version for message in fresh if isinstance(message.body, PromptGroup)} == {1}


async def test_a_wiped_broker_gets_open_groups_again_with_the_next_attempt(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        await it.issuer.issue()
        before = await it.issued()
        it.broker.lose_everything()
        it.teller.fates = [common_pb2.Fate(group_index=1, step=1)]
        await it.issuer.reconcile()
        after = await it.issued()
        assert [message.header.group_index for message in after] == [0, 2]
        assert {message.header.attempt for message in after} == {1}
        assert after[0].header.group_id == before[0].header.group_id


async def test_a_lost_group_is_issued_again_while_others_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with office(tmp_path) as it:
        table = it.settings.orchestrator.model_copy(update={"reconcile_s": 0.05})
        it.settings = it.settings.model_copy(update={"orchestrator": table})
        it.build()
        monkeypatch.setattr(issuers, "_LOOK_S", 0.01)
        await it.state.report(pb.ReportProgressRequest(incarnation=1, version=0))
        counted = iter(range(10**6))
        # News at each look, as of a run that goes on.
        monkeypatch.setattr(it.store, "counts", lambda: {"trained": next(counted)})
        running = asyncio.create_task(it.issuer.run())
        try:
            prompts = it.broker.streams[StreamName.PROMPTS]
            await until_async(lambda: prompts.added == 3)
            prompts.entries.pop(next(iter(prompts.entries)))
            await until_async(lambda: prompts.added > 3)
        finally:
            running.cancel()
        assert [message.header.attempt for message in await it.issued() if message.header.group_index == 0][-1] == 1


async def test_a_group_in_any_stream_is_not_issued_again(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        await it.issuer.issue()
        it.broker.lose_everything()
        await it.broker.add(StreamName.ROLLOUTS, encode(Message(header=builders.header(0), body=builders.group(0))))
        await it.broker.add(StreamName.SCORED, encode(Message(header=builders.header(2), body=builders.scored(2))))
        await it.issuer.reconcile()
        assert [message.header.group_index for message in await it.issued()] == [1]


async def test_a_crash_between_commit_and_xadd_loses_no_group(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        it.broker.lose_everything()
        await it.issuer.issue()
        it.broker.lose_everything()  # As if the process had died before the XADD.
        address = it.state.trainer.address
        it.build()
        assert it.state.trainer.address == address
        await it.issuer.reconcile()
        assert [message.header.group_index for message in await it.issued()] == [0, 1, 2]


async def test_a_lost_store_is_rebuilt_from_fates_and_streams(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        await it.issuer.issue()
        await it.trained(1, 0, 1)
        for file in tmp_path.glob("state.sqlite*"):
            file.unlink()
        it.build()
        fates = [common_pb2.Fate(group_index=index, step=1) for index in (0, 1)]
        request = pb.RegisterTrainerRequest(boot_id="t2", journaled_incarnation=1, version=1, fates=fates)
        await it.state.register_trainer(request)
        await it.issuer.reconcile()
        await it.issuer.issue()
        assert it.state.incarnation == 2
        assert [group.group_index for group in it.store.open_groups()] == [2, 3, 4]
        indices = [message.header.group_index for message in await it.issued()]
        assert sorted(set(indices)) == [0, 1, 2, 3, 4]
        assert indices.count(2) == 1


def evaluated(message: Message, value: float) -> Message:
    scores = tuple(Score(rollout_id=f"test/g{message.header.group_index:08d}/0", value=value) for _ in range(1))
    body = builders.group(message.header.group_index, size=1)
    return Message(header=message.header, body=ScoredGroup(group=body, scores=scores))


async def test_an_evaluation_ends_with_its_last_prompt_and_is_written_down(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        evaluation = Evaluation(it.settings, ROWS, it.store, it.broker, it.prompts)
        assert evaluation.due(0, 5) and not evaluation.due(1, 5)
        evaluation.start(0, 5)
        await it.until_issued(5)
        for position, message in enumerate(await it.issued()):
            assert message.header.purpose is Purpose.EVAL
            await evaluation._take(evaluated(message, float(position < 2)))
        await evaluation.finished()
        assert [row["accuracy"] for row in evaluation.results] == [0.4]
        again = Evaluation(it.settings, ROWS, it.store, it.broker, it.prompts)
        assert again.results == evaluation.results
        assert not again.due(0, 5)


async def test_an_evaluation_ends_at_its_deadline_and_reports_missing_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(evaluations, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    async with office(tmp_path) as it:
        evaluation = Evaluation(it.settings, ROWS, it.store, it.broker, it.prompts)
        evaluation.start(0, 5)
        await it.until_issued(5)
        first, second, *_ = await it.issued()
        await evaluation._take(evaluated(first, 1.0))
        tombstone = Tombstone(reason=DropReason.SCORER_FAILED)
        await evaluation._take(Message(header=second.header, body=tombstone))
        clock[0] += 59.0
        await evaluation.finished(within_s=1.2)
        assert evaluation.running
        clock[0] += 2.0
        await evaluation.finished()
        (row,) = evaluation.results
        assert (row["prompts"], row["missing"], row["accuracy"]) == (1, 4, 1.0)


async def test_a_run_in_which_nothing_can_be_scored_ends_with_the_reason(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        it.state = RunState(it.store, max_steps=5, failures_in_row=4)
        await it.state.register_trainer(pb.RegisterTrainerRequest(address="a", boot_id="t9", journaled_incarnation=1))

        def drop(*indices: int, reason: str = "scorer_failed") -> pb.ReportProgressRequest:
            fates = [common_pb2.Fate(group_index=index, reason=reason) for index in indices]
            return pb.ReportProgressRequest(incarnation=2, fates=fates)

        await it.state.report(drop(0, 1, 2))
        await it.state.report(pb.ReportProgressRequest(incarnation=2, fates=[common_pb2.Fate(group_index=3, step=1)]))
        await it.state.report(drop(4, 5, 6))
        await it.state.report(drop(7, 8, 9, 10, reason="stale"))
        assert it.state.phase is RunPhase.RUNNING
        await it.state.report(drop(11))
        assert it.state.phase is RunPhase.FAILED
        assert "the last 4 groups were all dropped, the newest as scorer_failed" in it.state.reason


async def test_nothing_is_issued_after_the_last_step(tmp_path: Path) -> None:
    async with office(tmp_path, staleness=2) as it:
        fates = [common_pb2.Fate(group_index=index, step=5) for index in (0, 1, 2)]
        await it.state.report(pb.ReportProgressRequest(incarnation=1, version=4, fates=fates))
        await it.issuer.issue()
        assert await it.issued() == []


async def test_repeated_fates_count_once_and_a_resumed_run_is_not_failed_by_old_ones(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        it.state = RunState(it.store, max_steps=5, failures_in_row=4)
        fates = [common_pb2.Fate(group_index=index, reason="poison") for index in range(3)]
        for boot in ("t7", "t8"):
            await it.state.register_trainer(
                pb.RegisterTrainerRequest(boot_id=boot, journaled_incarnation=it.state.incarnation, fates=fates)
            )
            await it.state.report(pb.ReportProgressRequest(incarnation=it.state.incarnation, fates=fates))
        assert it.state.phase is RunPhase.RUNNING


async def test_an_answer_of_another_version_does_not_count(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        evaluation = Evaluation(it.settings, ROWS[:1], it.store, it.broker, it.prompts)
        header = Header(run_id="test", purpose=Purpose.EVAL, group_index=0, group_id=eval_group_id("test", 4, 0))
        body = builders.scored(0, size=1, version=5)
        await evaluation._take(Message(header=header, body=body))
        assert it.store.evaluated(4, 0) == b""


async def test_an_unscored_answer_is_reported_as_abstained(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        often = EvalTable(name="often", every=2, k=3, greedy=False, top_p=0.5, max_tokens=7, task="exact")
        sets = (often, EvalTable(name="late", first=False, prompts=1))
        it.settings = it.settings.model_copy(update={"eval": sets})
        rows = [replace(row, set=name) for name in ("often", "late") for row in ROWS[:2]]

        def made() -> Evaluation:
            return Evaluation(it.settings, rows, it.store, it.broker, it.prompts)

        evaluation = made()
        assert [version for version in range(6) if evaluation.due(version, 5)] == [0, 2, 4, 5]
        assert [one.table.name for one in evaluation._due(0, 5)] == ["often"]
        evaluation.start(5, 5)
        await it.until_issued(3)
        messages = await it.issued()
        assert [(one.header.group_index, one.body.group_size, one.body.task) for one in messages] == [
            (0, 3, "exact"), (1, 3, "exact"), (2, 1, ""),
        ]  # fmt: skip
        sampling = messages[0].body.sampling
        assert (sampling.top_p, sampling.max_tokens, sampling.greedy) == (0.5, 7, False)
        for message in messages[:2]:
            await evaluation._take(answer(message, size=3))
        assert evaluation._task is not None
        evaluation._task.cancel()
        evaluation = made()
        evaluation.start(5, 5)
        lost = Tombstone(reason=DropReason.ABSTAINED)
        await evaluation._take(Message(header=messages[2].header, body=lost))
        await evaluation.finished()
        (row,) = evaluation.results
        assert (row["often/prompts"], row["often/missing"], row["often/abstained"]) == (2, 0, 2)
        assert (row["late/prompts"], row["late/missing"], row["late/abstained"]) == (0, 1, 1)
        assert not it.store.evaluated_prompts(5) and len(await it.issued()) == 3
        kept = rollouts.read(rollouts.rollout_file(it.path / "evaluations", 5), ("set", "step", "sample_id", "reward"))
        assert kept.num_rows == 6 and set(kept["set"].to_pylist()) == {"often"} and set(kept["step"].to_pylist()) == {5}
        assert kept["reward"].null_count == 2 and set(kept["sample_id"].to_pylist()) == {"s0"}


def answer(message: Message, *, size: int) -> Message:
    """Answers of version 5, of which the last could not be scored."""
    body = builders.scored(message.header.group_index, size=size, version=5)
    lost = replace(body.scores[-1], value=None, reason="the judge hung")
    return Message(header=message.header, body=replace(body, scores=(*body.scores[:-1], lost)))
