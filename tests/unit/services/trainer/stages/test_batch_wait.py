"""What the trainer says it waits for: the group, and where that is."""

import asyncio

from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import Ledger
from headrace.services.trainer.reporter import Reporter
from headrace.wire.errors import TransientError
from headrace.wire.journal import JournalWriter
from headrace.wire.rundir.events import EventLog
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.trainer.durability.test_ledger import ready


def ledger_with(tmp_path, stale, arrived):
    ledger = Ledger(batch_groups=3, max_staleness=1, stale=stale)
    for index in arrived:
        ledger.take(ready(index))
    journal = JournalWriter.open(tmp_path / "journal", incarnation=1, version=0, weights_digest="d", read_to={})
    return JournaledLedger(ledger, journal, EventLog(tmp_path, "trainer", 1), version=0, digest="d")


class Orchestrator:
    """Answers one report; meanwhile the trainer has come to wait for another group."""

    async def ReportProgress(self, request, timeout, metadata=None):
        self.asked = list(request.awaited)
        self.reporter.awaited = [6]
        return pb.ReportProgressResponse(awaited_at="rollout-1 generates it")


async def test_a_reported_place_belongs_to_the_requested_group(tmp_path):
    stub = Orchestrator()
    ledger = ledger_with(tmp_path, "wait", [])
    stub.reporter = reporter = Reporter(stub, ledger, pb.RegisterTrainerRequest(), republish=lambda: None)
    reporter.awaited = [5, 7]
    await reporter._report()
    assert stub.asked == [5, 7] and reporter.places == {5: "rollout-1 generates it"}
    ledger.close()


class AwayOnce:
    """Answers the second report."""

    def __init__(self):
        self.troubles = []

    async def ReportProgress(self, request, timeout, metadata=None):
        self.troubles.append(self.reporter.trouble)
        if len(self.troubles) == 1:
            raise TransientError("no answer")
        return pb.ReportProgressResponse()


async def test_the_orchestrator_is_away_until_it_answers(tmp_path):
    stub = AwayOnce()
    ledger = ledger_with(tmp_path, "wait", [])
    stub.reporter = reporter = Reporter(stub, ledger, pb.RegisterTrainerRequest(), republish=lambda: None)
    running = asyncio.create_task(reporter.run())
    async with asyncio.timeout(20):
        while len(stub.troubles) < 2 or reporter.trouble:
            await asyncio.sleep(0.02)
    running.cancel()
    assert stub.troubles == ["", "the orchestrator is away: no answer"]
    ledger.close()
