"""Dynamic sampling through real streams, the real issuer, inbox, ledger and journal, while the trainer dies and the
broker loses everything: each group is trained once or dropped once, and only what tells nothing is discarded."""

import asyncio
import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.inspect.history import HistoryVerdict, check_run
from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream
from headrace.services.orchestrator.issuing.prompts import PromptRow
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.settings import OrchestratorSettings, OrchestratorTable
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import Ledger
from headrace.services.trainer.reporter import wire_fates
from headrace.services.trainer.runtime.inbox import Inbox
from headrace.services.trainer.stages.restore import read_history
from headrace.wire.contracts import DropReason, Message, PromptGroup, encode, group_id
from headrace.wire.journal import (
    BatchRecord,
    DroppedRecord,
    JournalWriter,
    highest_incarnation,
    read_journal,
    read_lengths,
)
from headrace.wire.rpc import serve
from headrace.wire.rundir.events import EventLog
from headrace.wire.settings import BatchTable, RunTable
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import Worker
from headrace.wire.v1 import orchestrator_pb2, trainer_pb2, trainer_pb2_grpc
from tests.unit.services.trainer.builders import scored_group
from tests.valkey import Valkey

STEPS, GROUPS, RUN = 12, 3, "test"


def is_informative(index):
    """About 6 of 10 groups do."""
    return random.Random(index).random() < 0.6


DEATHS = {
    1: "while it discards",
    2: "behind the journal",
    4: "before the journal",
    5: "while it discards",
    8: "behind the ack",
    10: "while it discards",
}
"""Step -> where in it the trainer dies, once."""
WIPED_AT = 6
"""In this step the broker loses everything, once."""


class DeathError(Exception):
    """Death of the trainer: nothing is closed, nothing is reported."""


class World:
    """Everything but the trainer; it outlives the trainer's lives."""

    def __init__(self, tmp_path, broker, staleness):
        self.run_dir, self.broker, self.staleness = tmp_path / "run", broker, staleness
        self.draw = random.Random(7)
        (self.run_dir / "config").mkdir(parents=True)
        (self.run_dir / "config" / "run.toml").write_text(f"[run]\nmax_staleness = {staleness}\n")
        settings = OrchestratorSettings(
            run=RunTable(id=RUN, seed=1, max_steps=STEPS, max_staleness=staleness),
            batch=BatchTable(groups=GROUPS, group_size=4),
            orchestrator=OrchestratorTable(reconcile_s=1),
            run_dir=self.run_dir,
        )
        rows = [PromptRow(sample_id=f"s{i}", token_ids=scored_group(i).group.prompt.token_ids, text="", columns={})
                for i in range(7)]  # fmt: skip
        self.store = Store(self.run_dir / "orchestrator" / "state.sqlite")
        self.state = RunState(self.store, max_steps=STEPS)
        self.orchestrator = EventLog(self.run_dir, "orchestrator", "x")
        self.replica = EventLog(self.run_dir, "rollout-0", "x")
        self.clients = Clients()
        prompts = PromptStream(broker, self.store)
        self.issuer = Issuer(
            settings, rows, self.store, self.state, broker, prompts, self.clients, self.orchestrator
        )  # fmt: skip
        self.incarnation = self.version = 0

    def publish(self, incarnation, version):
        self.replica.append("weights_committed", incarnation=incarnation, version=version, digest=f"d{version}")
        self.incarnation, self.version = incarnation, version

    async def generate(self, message):
        """A replica and a scorer in one: rollouts are those of the index, and so is what they tell."""
        assert isinstance(message.body, PromptGroup)
        while self.version < message.body.min_version:
            await asyncio.sleep(0.002)
        index = message.header.group_index
        incarnation, version = self.incarnation, self.version
        await asyncio.sleep(self.draw.expovariate(1 / 0.005))
        scored = scored_group(
            index,
            run_id=RUN,
            version=version,
            incarnation=incarnation,
            digest=f"d{version}",
            rewards=[0, 1, 0, 1] if is_informative(index) else [1, 1, 1, 1],
        )
        body = replace(scored, group=replace(scored.group, replica_id="rollout-0"))
        return [Put(stream=StreamName.SCORED, data=encode(Message(header=message.header, body=body)))]

    def worker(self):
        return Worker(
            self.broker,
            StreamName.PROMPTS,
            "rollout-0",
            self.generate,
            service="test",
            lease_s=1.0,
            capacity=lambda in_flight: 6 - in_flight,
            failure=DropReason.ROLLOUT_FAILED,
        )

    def end(self):
        names = [group_id(RUN, group.group_index) for group in self.store.open_groups()]
        self.orchestrator.append("run_ended", version=STEPS, open_groups=names)


class FateTeller(trainer_pb2_grpc.TrainerServiceServicer):
    """The gRPC face of whichever life there is."""

    def __init__(self):
        self.ledger = None

    async def GetFates(self, request, context):
        fates = self.ledger.progress(request.from_index).fates if self.ledger else []
        return trainer_pb2.GetFatesResponse(fates=wire_fates(fates))


class Life:
    """A trainer without a model: it takes groups in, journals batches, and calls that a step."""

    def __init__(self, world, ledger, inbox):
        self.world, self.ledger, self.inbox = world, ledger, inbox

    @classmethod
    async def begin(cls, world, address, number):
        journal = world.run_dir / "journal"
        records = list(read_journal(journal)) if journal.is_dir() else []
        history = read_history(records)
        version = history.last_step
        ledger = Ledger(
            batch_groups=GROUPS,
            max_staleness=world.staleness,
            dynamic_sampling=True,
            discard_limit=10,
            fates=history.fates,
        )
        request = orchestrator_pb2.RegisterTrainerRequest(
            address=address,
            boot_id=f"life-{number}",
            journaled_incarnation=highest_incarnation(journal) if records else 0,
            version=version,
            frontier=ledger.frontier,
            fates=wire_fates(ledger.fates()),
        )
        incarnation = await world.state.register_trainer(request)
        writer = JournalWriter.open(
            journal,
            incarnation=incarnation,
            version=version,
            weights_digest=f"d{version}",
            read_to=read_lengths(records),
        )
        events = EventLog(world.run_dir, "trainer", incarnation)
        journaled = JournaledLedger(ledger, writer, events, version=version, digest=f"d{version}")
        if version and version not in history.done:
            journaled.step_done(version, f"d{version}")
        world.publish(incarnation, version)
        return cls(world, journaled, Inbox(world.broker, journaled, run_id=RUN, lease_s=1.0, ended=lambda: None))

    async def run(self, strike):
        """Until the last step, or until `strike` raises."""
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(self.inbox.run()), tasks.create_task(self._report())]
            while self.ledger.version < STEPS:
                await self._look(strike)
            for other in others:
                other.cancel()

    async def _look(self, strike):
        strike("while it discards" if self.ledger.discarded else "")
        batch, dropped = self.ledger.next_batch()
        if dropped:
            await self.inbox.ack([group.group_index for group in dropped])
        if batch is None:
            await asyncio.sleep(0.002)
            return
        step = self.ledger.version + 1
        assert all(is_informative(group.group_index) for group in batch)
        strike("before the journal")
        self.ledger.journal_batch(step, batch)
        strike("behind the journal")
        await self.inbox.ack([group.group_index for group in batch])
        strike("behind the ack")
        self.ledger.step_done(step, f"d{step}")
        self.world.publish(self.ledger.incarnation, step)

    async def _report(self):
        while True:
            progress = self.ledger.progress()
            await self.world.state.report(
                orchestrator_pb2.ReportProgressRequest(
                    incarnation=self.ledger.incarnation, version=progress.version, fates=wire_fates(progress.fates)
                )
            )
            self.ledger.reported(progress.fates)
            await asyncio.sleep(0.002)


async def live_on(world, address, teller, wipe):
    """Life after life, until one gets to the end; returns how many there were."""
    deaths, wipes = dict(DEATHS), [WIPED_AT]
    for number in itertools.count(1):
        life = await Life.begin(world, address, number)
        teller.ledger = life.ledger

        def strike(where, life=life):
            step = life.ledger.version + 1
            if step in wipes:
                wipes.remove(step)
                wipe()
            if deaths.get(step) == where:
                del deaths[step]
                raise DeathError(where)

        try:
            await life.run(strike)
            return number
        except* DeathError:
            await asyncio.sleep(0.01)
    raise AssertionError


def facts(world, kind):
    return [item.record for item in read_journal(world.run_dir / "journal") if isinstance(item.record, kind)]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("staleness", [0, 2])
async def test_nothing_is_lost_or_trained_twice_while_groups_are_discarded(
    tmp_path: Path, valkey: Valkey, staleness: int
) -> None:
    broker = RedisBroker(valkey.url, RUN)
    world = World(tmp_path, broker, staleness)
    teller = FateTeller()

    def add(server):
        trainer_pb2_grpc.add_TrainerServiceServicer_to_server(teller, server)

    def wipe():
        valkey.wipe()
        valkey.start()

    server = await serve({"wire.v1.TrainerService": add}, "127.0.0.1", 0)
    stop = asyncio.Event()
    others = [asyncio.create_task(world.issuer.run()), asyncio.create_task(world.worker().run(stop))]
    try:
        async with asyncio.timeout(60):
            lives = await live_on(world, f"127.0.0.1:{server.port}", teller, wipe)
    finally:
        stop.set()
        others[0].cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await world.clients.close()
        await server.stop(0)
        await broker.close()
    world.end()
    judge(world, lives, check_run(world.run_dir))


def judge(world: World, lives: int, verdict: HistoryVerdict) -> None:
    assert verdict.ok, verdict.problems
    # Not every one of those steps need have something to discard.
    assert lives >= 4, "the trainer must have died for this test to mean anything"
    assert (verdict.steps, verdict.groups.trained) == (STEPS, STEPS * GROUPS)
    assert verdict.groups.dropped["uninformative"] > STEPS
    assert verdict.groups.dropped.keys() <= {"uninformative", "stale", "run_ended"}
    discarded = [drop.group_index for drop in facts(world, DroppedRecord) if drop.reason == "uninformative"]
    assert len(discarded) == len(set(discarded)) and not any(map(is_informative, discarded))
    if world.staleness == 0:
        informative = filter(is_informative, itertools.count())
        wanted = [tuple(itertools.islice(informative, GROUPS)) for _ in range(STEPS)]
        assert [batch.group_indices for batch in facts(world, BatchRecord)] == wanted
