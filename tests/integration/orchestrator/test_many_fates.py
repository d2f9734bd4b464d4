"""An orchestrator that has lost groups asks a trainer which has more fates than one message takes."""

from pathlib import Path

import numpy as np

from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream
from headrace.services.orchestrator.issuing.prompts import PromptRow
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import OpenGroup, Store
from headrace.services.trainer.durability.fate_table import GroupFate
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import Ledger
from headrace.services.trainer.service import TrainerServicer
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import make_publisher
from headrace.wire.contracts import decode
from headrace.wire.journal import JournalWriter
from headrace.wire.rpc import MAX_MESSAGE_BYTES, serve
from headrace.wire.rundir.events import EventLog
from headrace.wire.settings import RunTable
from headrace.wire.streams import StreamName
from headrace.wire.streams.memory import MemoryBroker
from headrace.wire.v1 import orchestrator_pb2 as pb

NAME = "g" * 250
"""Long names make long fates: fewer of them exceed a message."""
FATES = 300_000
LOST = (0, 250_000, FATES)
"""Open in the orchestrator's store: all but the last have ended."""


def trainer_with_fates(folder: Path) -> TrainerServicer:
    fates = [GroupFate(group_index=index, group_id=NAME, step=1) for index in range(FATES)]
    ledger = Ledger(batch_groups=1, max_staleness=0, fates=fates)
    journal = JournalWriter.open(folder / "journal", incarnation=1, version=0, weights_digest="d", read_to={})
    servicer = TrainerServicer(make_publisher(TrainerSettings(run_dir=folder)), lambda: "")
    servicer.ledger = JournaledLedger(ledger, journal, EventLog(folder, "trainer", 1), version=0, digest="d")
    return servicer


async def test_fates_beyond_one_message_come_in_pages_and_only_the_lost_group_is_issued_again(tmp_path: Path) -> None:
    servicer = trainer_with_fates(tmp_path)
    assert FATES * len(NAME) > MAX_MESSAGE_BYTES
    server = await serve({"wire.v1.TrainerService": servicer.add_to}, "127.0.0.1", 0)
    settings = OrchestratorSettings(run=RunTable(id="test", max_steps=5), run_dir=tmp_path)
    store, broker, clients = Store(tmp_path / "state.sqlite"), MemoryBroker(), Clients()
    state = RunState(store, max_steps=5)
    await state.register_trainer(pb.RegisterTrainerRequest(address=f"127.0.0.1:{server.port}", boot_id="t"))
    store.issue([OpenGroup(group_index=index, attempt=0) for index in LOST])
    rows = [PromptRow(sample_id="s", token_ids=np.array([1], np.int32), text="1", columns={})]
    events = EventLog(tmp_path, "orchestrator", "x")
    issuer = Issuer(settings, rows, store, state, broker, PromptStream(broker, store), clients, events)
    try:
        await issuer.reconcile()
        again = [decode(data).header for data in await broker.live(StreamName.PROMPTS)]
        assert [(header.group_index, header.attempt) for header in again] == [(FATES, 1)]
        assert store.ended(range(FATES + 1)) == list(range(FATES))
    finally:
        await clients.close()
        await server.stop(0)
        events.close()
