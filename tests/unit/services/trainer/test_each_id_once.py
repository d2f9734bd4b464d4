"""Any history of one trainer's streams, ledger, journal and checkpoints against a plain model: each id ends once."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import Ledger
from headrace.services.trainer.runtime.inbox import Inbox
from headrace.services.trainer.stages.restore import read_history, replay
from headrace.wire.contracts import DropReason, Header, Message, Purpose, Tombstone, decode, encode, group_id
from headrace.wire.journal import JournalWriter, prune_payloads, read_journal, read_lengths
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import Entry, StreamName
from tests.memory_broker import MemoryBroker
from tests.unit.services.trainer.builders import scored_group

GROUPS = 3
WEIGHTS = {"w": torch.zeros(1)}


def header(index: int, attempt: int) -> Header:
    name = group_id("run", index)
    return Header(run_id="run", purpose=Purpose.TRAIN, group_index=index, group_id=name, attempt=attempt)


class TrainerMachine(RuleBasedStateMachine):
    """Groups come, come again and are given up; the trainer trains, takes checkpoints, and dies anywhere between.

    The model: `ended` says how each id ended (a step, 0 = dropped), `ready` which have come in this life.
    """

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.broker = MemoryBroker()
        self.store = CheckpointStore(self.folder / "checkpoints", keep=2)
        self.issued, self.incarnation = 0, 0
        self.ended: dict[int, int] = {}
        self.ready: set[int] = set()
        self.start()
        self.issue()

    def start(self) -> None:
        """A life begins, as `RlStage` restores it."""
        journal = self.folder / "journal"
        records = list(read_journal(journal)) if journal.is_dir() else []
        history = read_history(records)
        checkpoint = self.store.newest()
        after, known = (checkpoint.state.step, checkpoint.state.fates) if checkpoint else (0, ())
        replayed: list[int] = []
        replay(journal, history, after_step=after, train=lambda step, batch: replayed.append(step))
        assert replayed == list(range(after + 1, max(self.ended.values(), default=0) + 1))
        self.version, self.incarnation = len(history.batches), self.incarnation + 1
        fates = {fate.group_index: fate for fate in (*known, *history.fates)}
        assert {fate.group_index: fate.step for fate in fates.values()} == self.ended
        ledger = Ledger(batch_groups=GROUPS, max_staleness=0, fates=fates.values())
        writer = JournalWriter.open(
            journal, incarnation=self.incarnation, version=self.version, weights_digest=self.digest,
            read_to=read_lengths(records),
        )  # fmt: skip
        events = EventLog(self.folder, "trainer", self.incarnation)
        self.journaled = JournaledLedger(ledger, writer, events, version=self.version, digest=self.digest)
        self.inbox = Inbox(self.broker, self.journaled, run_id="run", lease_s=1e9, ended=lambda: None)
        self.ready = set()
        self.take(self.loop.run_until_complete(self.inbox._consumer.reclaim_own()))

    @property
    def digest(self) -> str:
        return f"d{self.version}"

    def put(self, index: int, attempt: int) -> None:
        """As a trainer of this version is sent it: sampled with the weights that it has."""
        body = scored_group(index, version=self.version, incarnation=self.incarnation, digest=self.digest)
        self.broker.put(StreamName.SCORED, encode(Message(header=header(index, attempt), body=body)))

    @rule()
    def issue(self) -> None:
        """Within the credit of a trainer on policy: one batch."""
        while self.issued - len(self.ended) < GROUPS:
            self.put(self.issued, 0)
            self.issued += 1

    @rule(back=st.integers(1, 6))
    def come_again(self, back: int) -> None:
        if back <= self.issued:
            self.put(self.issued - back, 1)

    @rule(back=st.integers(0, 6))
    def give_up(self, back: int) -> None:
        """A group that has been sent, or (0) the next one, which is sent nothing else."""
        if not back:
            self.issued += 1
        index = self.issued - max(back, 1)
        if index >= 0:
            dead = Tombstone(reason=DropReason.POISON, detail="", service="test")
            self.broker.put(StreamName.SCORED, encode(Message(header=header(index, 1), body=dead)))

    @rule(count=st.integers(1, 9))
    def deliver(self, count: int) -> None:
        self.issue()
        self.take(self.loop.run_until_complete(self.inbox._consumer.read(count=count, block_s=0.0)))

    def take(self, entries: list[Entry]) -> None:
        for entry in entries:
            message = decode(entry.data)
            index = message.header.group_index
            if index not in self.ended and index not in self.ready:
                if isinstance(message.body, Tombstone):
                    self.ended[index] = 0
                else:
                    self.ready.add(index)
            self.loop.run_until_complete(self.inbox._handle(entry))

    @rule(dies=st.sampled_from(("", "", "", "journaled", "acked", "done")))
    def train(self, dies: str) -> None:
        self.deliver(9)
        batch, dropped = self.journaled.next_batch()
        for group in dropped:  # Sampled by weights that the trainer has no longer.
            self.ready.remove(group.group_index)
            self.ended[group.group_index] = 0
        if batch is None:
            return
        self.journaled.journal_batch(self.version + 1, batch)
        indices = [group.group_index for group in batch]
        assert indices == [index for index in range(self.issued) if index not in self.ended][:GROUPS]
        self.ended |= dict.fromkeys(indices, self.version + 1)
        self.ready -= set(indices)
        if dies == "journaled":
            self.die()
            return
        self.loop.run_until_complete(self.inbox.ack(indices))
        if dies == "acked":
            self.die()
            return
        self.version += 1
        self.journaled.step_done(self.version, self.digest)
        if dies == "done":
            self.die()

    @rule()
    def checkpoint(self) -> None:
        frontier = self.journaled.progress().frontier
        above = tuple(self.journaled.progress(from_index=frontier).fates)
        state = CheckpointState(
            step=self.version, incarnation=self.incarnation, frontier=frontier, fates=above, coefficients={},
            config_digest="",
        )  # fmt: skip
        self.store.save(state, {"model": WEIGHTS, "optimizer": WEIGHTS, "random": {}})
        prune_payloads(self.folder / "journal", self.store.covered_step())

    @rule()
    def die(self) -> None:
        self.journaled.close()
        self.start()

    @rule()
    def lose_the_broker(self) -> None:
        """It loses everything, and the orchestrator issues again what has not ended."""
        self.broker.lose_everything()
        for index in range(self.issued):
            if index not in self.ended:
                self.put(index, 1)

    def teardown(self) -> None:
        if not hasattr(self, "journaled"):
            return
        self.lose_the_broker()
        while entries := self.loop.run_until_complete(self.inbox._consumer.read(count=50, block_s=0.0)):
            self.take(entries)
        while len(self.ended) + GROUPS <= self.issued:
            before = len(self.ended)
            self.train("")
            assert len(self.ended) > before, "groups have come, and are not trained"
        self.die()
        assert self.ended.keys() | self.ready >= set(range(self.issued)), "a group is lost"
        self.journaled.close()
        self.loop.close()
        shutil.rmtree(self.folder)


TrainerMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
test_any_history_ends_each_id_once = TrainerMachine.TestCase
