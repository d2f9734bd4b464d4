import asyncio
import dataclasses

import pytest

from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import DynamicSamplingError, Ledger
from headrace.services.trainer.runtime.inbox import Inbox
from headrace.services.trainer.runtime.token_limits import TokenLimits
from headrace.wire.contracts import DropReason, Header, Message, Purpose, Tombstone, encode, group_id
from headrace.wire.errors import TransientError
from headrace.wire.journal import DroppedRecord, JournalWriter, read_journal
from headrace.wire.rundir.events import EventLog, read_events
from headrace.wire.streams import StreamName
from tests.memory_broker import MemoryBroker
from tests.unit.services.trainer.builders import VOCAB, scored_group
from tests.virtual_time import run_in_own_time


def entry(index, *, purpose=Purpose.TRAIN, run_id="run", name=None, body=None, attempt=0):
    name = name or group_id("run", index)
    header = Header(run_id=run_id, purpose=purpose, group_index=index, group_id=name, attempt=attempt)
    return encode(Message(header=header, body=body or scored_group(index)))


class Bench:
    """An inbox at work on a memory broker."""

    def __init__(self, tmp_path, *, groups=2, lease_s=30.0, broker=None, **ledger):
        self.broker = broker or MemoryBroker()
        self.tmp_path = tmp_path
        journal = JournalWriter.open(tmp_path / "journal", incarnation=1, version=0, weights_digest="d", read_to={})
        rules = Ledger(batch_groups=groups, max_staleness=0, **ledger)
        self.ledger = JournaledLedger(rules, journal, EventLog(tmp_path, "trainer", 1), version=0, digest="d")
        self.ended = 0
        limits = TokenLimits(vocab=VOCAB, context_length=20)
        self.inbox = Inbox(self.broker, self.ledger, run_id="run", lease_s=lease_s, ended=self.count, limits=limits)

    def count(self):
        self.ended += 1

    async def __aenter__(self):
        self.task = asyncio.create_task(self.inbox.run())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.ledger.close()

    def put(self, *entries):
        for data in entries:
            self.broker.put(StreamName.SCORED, data)

    async def until(self, done):
        async with asyncio.timeout(60):
            while not await done():
                await asyncio.sleep(0.01)

    async def settled(self, pending):
        async def look():
            stats = await self.broker.stats(StreamName.SCORED)
            return stats.undelivered == 0 and stats.pending == pending

        await self.until(look)

    def drops(self):
        records = [item.record for item in read_journal(self.tmp_path / "journal")]
        return [(r.group_index, r.reason) for r in records if isinstance(r, DroppedRecord)]


async def test_groups_stay_unacked_until_they_are_journaled(tmp_path):
    async with Bench(tmp_path) as bench:
        bench.put(entry(1), entry(0))
        await bench.settled(pending=2)
        batch, _ = bench.ledger.next_batch()
        bench.ledger.journal_batch(1, batch)
        assert (await bench.broker.stats(StreamName.SCORED)).pending == 2
        await bench.inbox.ack([0, 1])
        await bench.settled(pending=0)


async def test_entries_left_pending_by_an_earlier_life_are_taken_at_once(tmp_path):
    broker = MemoryBroker()
    broker.put(StreamName.SCORED, entry(0))
    await broker.consumer(StreamName.SCORED, "trainer", lease_s=30.0).read(count=5, block_s=0.1)
    async with Bench(tmp_path, groups=1, broker=broker) as bench:

        async def has_batch():
            return bench.ledger.next_batch()[0] is not None

        await bench.until(has_batch)


async def test_a_second_entry_of_a_group_is_acked_and_forgotten(tmp_path):
    async with Bench(tmp_path) as bench:
        bench.put(entry(0), entry(0))
        await bench.settled(pending=1)
        bench.put(entry(0, body=Tombstone(reason=DropReason.CRASH_LOOP)))
        await bench.settled(pending=1)
        assert bench.drops() == []


async def test_a_redelivery_of_a_held_entry_is_not_acked(tmp_path):
    async with Bench(tmp_path, lease_s=0.15) as bench:
        bench.inbox._lease_s = 60.0  # No renewal: the lease runs out and the broker delivers it to us once more.
        bench.put(entry(0))
        await bench.settled(pending=1)
        await asyncio.sleep(0.4)
        assert bench.broker.streams[StreamName.SCORED].pending[1].deliveries > 1
        await bench.settled(pending=1)


def test_held_entries_are_renewed(tmp_path, monkeypatch):
    async def hold():
        async with Bench(tmp_path) as bench:
            bench.put(entry(0))
            await asyncio.sleep(200.0)
            return bench.broker.streams[StreamName.SCORED].pending[1].deliveries

    # A machine that stands still for most of a lease would have it delivered again, and rightly so.
    assert run_in_own_time(hold, monkeypatch) == 1


def with_one_score():
    whole = scored_group(0)
    lost = [dataclasses.replace(score, value=None, reason="down") for score in whole.scores[1:]]
    return dataclasses.replace(whole, scores=(whole.scores[0], *lost))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (Tombstone(reason=DropReason.POISON), "poison"),
        (with_one_score(), "abstained"),
        (scored_group(0, rewards=[1, 1, 1, 1]), "uninformative"),
    ],
    ids=["tombstone", "too few scores", "equal rewards"],
)
async def test_a_dropped_group_is_journaled_reported_at_once_and_acked_and_never_trained(tmp_path, body, reason):
    async with Bench(tmp_path, groups=1, dynamic_sampling=True, discard_limit=2) as bench:
        bench.put(entry(0, body=body))
        await bench.settled(pending=0)
        assert bench.drops() == [(0, reason)] and bench.ended == 1
        assert [f.reason for f in bench.ledger.progress().fates] == [reason]
        dropped = [event for event in read_events(tmp_path) if event["event"] == "dropped"]
        assert [(event["group_index"], event["reason"]) for event in dropped] == [(0, reason)]
        bench.put(entry(0))
        await bench.settled(pending=0)
        assert bench.drops() == [(0, reason)] and bench.ledger.next_batch() == (None, [])


async def test_tokens_of_discarded_groups_are_reported_with_the_next_batch(tmp_path):
    async with Bench(tmp_path, groups=1, dynamic_sampling=True, discard_limit=2) as bench:
        bench.put(entry(0, body=scored_group(0, rewards=[1, 1, 1, 1])))
        bench.put(entry(1, body=scored_group(1, rewards=[1, 0, 1, 1])))
        await bench.settled(pending=1)
        batch, _ = bench.ledger.next_batch()
        on_the_way = bench.ledger.journal_batch(1, batch)
        tokens = sum(len(rollout.token_ids) for rollout in scored_group(0).group.rollouts)
        assert (on_the_way.uninformative, on_the_way.spent) == (1, tokens)
        (told,) = (e for e in read_events(tmp_path) if e["event"] == "batch")
        assert told["group_ids"] == ["run/g00000001"] and told["discarded"] == 1


async def test_a_replicas_stale_tombstones_are_reported_with_the_next_batch(tmp_path):
    async with Bench(tmp_path, groups=1) as bench:
        bench.put(entry(0, body=Tombstone(reason=DropReason.STALE, lengths=(20, 16))), entry(1))
        await bench.settled(pending=1)
        assert bench.drops() == [(0, "stale")]
        batch, _ = bench.ledger.next_batch()
        on_the_way = bench.ledger.journal_batch(1, batch)
        assert (on_the_way.stale, on_the_way.spent) == (((20, 16),), 36)
        bench.put(entry(2))
        await bench.settled(pending=2)
        batch, _ = bench.ledger.next_batch()
        assert bench.ledger.journal_batch(2, batch).spent == 0


async def test_too_many_uninformative_groups_end_the_run_once_all_are_journaled(tmp_path):
    async with Bench(tmp_path, groups=1, dynamic_sampling=True, discard_limit=2) as bench:
        bench.put(*(entry(index, body=scored_group(index, rewards=[0, 0, 0, 0])) for index in range(3)))
        await bench.settled(pending=0)
        with pytest.raises(DynamicSamplingError, match="3 of 0"):
            bench.ledger.next_batch()
        assert [index for index, _ in bench.drops()] == [0, 1, 2]


async def test_an_unreachable_broker_is_named_until_the_next_read(tmp_path, monkeypatch):
    async with Bench(tmp_path) as bench:
        consumer = bench.inbox._consumer
        read = consumer.read

        async def away(**_):
            raise TransientError("no answer")

        async def named():
            return bench.inbox.trouble == "the broker is away: no answer"

        async def unnamed():
            return not bench.inbox.trouble

        monkeypatch.setattr(consumer, "read", away)
        await bench.until(named)
        monkeypatch.setattr(consumer, "read", read)
        await bench.until(unnamed)
