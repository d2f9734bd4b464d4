"""What was given up is shown with its reason; its prompt is issued again once, as a new group."""

import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from headrace.services.orchestrator.issuing.dead_letters import DeadLetters
from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.issuing.messages import eval_prompt
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream
from headrace.services.orchestrator.issuing.prompts import PromptOrder, PromptRow
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.run_state import RunPhase, RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.config.settings import BatchTable, RunTable
from headrace.wire.contracts import DropReason, Message, PromptGroup, decode, encode
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import EventLog, read_events
from headrace.wire.streams import StreamName
from headrace.wire.streams.worker import bury_puts, dead_put
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.memory_broker import MemoryBroker

ROWS = [
    PromptRow(sample_id=f"s{i}", token_ids=np.array([i + 1], np.int32), text=f"prompt {i}", columns={})
    for i in range(5)
]
BATCH = 3


class House:
    """An issuer and the dead letters over a store on disk and streams in memory; 3 groups are open at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = OrchestratorSettings(
            run=RunTable(id="test", seed=1, max_steps=50, max_staleness=0),
            batch=BatchTable(groups=BATCH, group_size=2),
            run_dir=path,
        )
        self.broker = MemoryBroker()
        self.taken = 0
        self.step = 0
        self.build()

    def build(self) -> None:
        """Also what a restart does: everything anew but disk and streams."""
        self.store = Store(self.path / "state.sqlite")
        self.state = RunState(self.store, max_steps=50)
        self.state.phase = RunPhase.RUNNING
        self.events = EventLog(self.path, "orchestrator", "x")
        prompts = PromptStream(self.broker, self.store)
        self.issuer = Issuer(self.settings, ROWS, self.store, self.state, self.broker, prompts, Clients(), self.events)
        self.dead = DeadLetters(self.broker, self.store, self.issuer, ROWS, self.state, self.events, "test")

    async def issue(self) -> list[tuple[int, str]]:
        """(index, sample) of what is issued now."""
        await self.issuer.issue()
        messages = [decode(data) for data in await self.broker.live(StreamName.PROMPTS)]
        new, self.taken = messages[self.taken :], len(messages)
        return [(message.header.group_index, _sample(message)) for message in new]

    async def train(self, *indices: int) -> None:
        self.step += 1
        self.store.end([(index, self.step, "") for index in indices])
        self.state.version = self.step

    async def bury(self, index: int, reason: DropReason = DropReason.SCORER_FAILED) -> str:
        """What a worker does that gives a group up, and the trainer with its tombstone; returns the entry's id."""
        live = [decode(data) for data in await self.broker.live(StreamName.PROMPTS)]
        message = next(one for one in live if one.header.group_index == index)
        for put in bury_puts(encode(message), reason, f"gave {index} up", "reward"):
            self.broker.put(put.stream, put.data, note=put.note)
        self.store.end([(index, 0, str(reason))])
        return (await self.broker.newest(StreamName.DEAD, before="", count=1))[0].id


def _sample(message: Message) -> str:
    assert isinstance(message.body, PromptGroup)
    return message.body.sample_id


def usual(indices: Sequence[int], moved: int = 0) -> list[tuple[int, str]]:
    """What the run's order gives these groups when `moved` groups before them were issued again."""
    order = PromptOrder(len(ROWS), seed=1)
    return [(index, ROWS[order.row(index - moved)].sample_id) for index in indices]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    yield House(tmp_path)


async def test_a_letter_tells_whose_it_was_and_why(house: House) -> None:
    issued = dict(await house.issue())
    await house.bury(1)
    await house.bury(2, DropReason.POISON)
    page = await house.dead.page(0, 10)
    assert page.total == 2
    newest, oldest = page.rows
    assert (newest.group_index, newest.reason, newest.service) == (2, "poison", "reward")
    assert oldest.error == "gave 1 up" and oldest.group_id == "test/g00000001" and oldest.purpose == "train"
    assert oldest.prompt == f"prompt {issued[1][1:]}" and oldest.bytes > 0 and not oldest.requeued
    assert (await house.dead.page(1, 10)).rows == (oldest,)


async def test_its_prompt_takes_the_next_free_index_and_no_prompt_is_lost(house: House) -> None:
    issued = dict(await house.issue())
    entry = await house.bury(1)
    assert "as soon as credit allows" in await house.dead.requeue(entry, "dashboard")
    assert await house.issue() == [(3, issued[1])]
    await house.train(0, 2, 3)
    assert await house.issue() == usual([4, 5, 6], moved=1)
    assert "issued again as test/g00000003" in await house.dead.requeue(entry, "dashboard")
    assert (await house.dead.page(0, 1)).rows[0].requeued


async def test_it_is_issued_once_however_often_it_is_asked_and_whoever_lives(house: House) -> None:
    await house.issue()
    entry = await house.bury(1)
    await house.dead.requeue(entry, "a")
    await house.dead.requeue(entry, "b")
    house.build()
    await house.dead.requeue(entry, "c")
    await house.issue()
    house.build()
    await house.dead.requeue(entry, "d")
    await house.train(0, 2, 3)
    assert await house.issue() == usual([4, 5, 6], moved=1)
    told = [event for event in read_events(house.path) if event["event"] == "requeued"]
    assert [(event["who"], event["group_id"]) for event in told] == [("a", "test/g00000001")]


async def test_several_keep_their_order_and_stay_within_credit(house: House) -> None:
    issued = dict(await house.issue())
    entries = [await house.bury(index) for index in (2, 0)]
    for entry in entries:
        await house.dead.requeue(entry, "x")
    assert await house.issue() == [(3, issued[2]), (4, issued[0])]
    assert len(house.store.open_groups()) == BATCH


async def test_killed_at_any_statement_of_an_issue_it_goes_on_as_if_it_had_not_been(house: House) -> None:
    issued = dict(await house.issue())
    for index in (2, 0):
        await house.dead.requeue(await house.bury(index), "x")
    died: list[Path] = []

    def die(_: str) -> None:
        """What a process killed before this statement leaves behind."""
        died.append(house.path / f"died-{len(died)}")
        died[-1].mkdir()
        for file in house.path.glob("state.sqlite*"):
            shutil.copy(file, died[-1])

    house.store._db._db.set_trace_callback(die)
    await house.issue()
    house.store._db._db.set_trace_callback(None)
    assert len(died) > 5
    for folder in died:
        again = House(folder)
        given = {index for index in again.store.requeued().values() if index is not None}
        assert given <= {group.group_index for group in again.store.open_groups()}
        await again.issue()
        assert [group.group_index for group in again.store.open_groups()] == [1, 3, 4]
        assert [ROWS[again.issuer.row_of(index)].sample_id for index in (1, 3, 4)] == [issued[1], issued[2], issued[0]]


async def test_what_cannot_be_issued_again_is_refused_with_the_reason(house: House) -> None:
    await house.issue()
    house.broker.put(
        StreamName.DEAD, encode(eval_prompt(house.settings, house.settings.eval[0], ROWS[0], prompt=0, version=3))
    )
    house.broker.put(StreamName.DEAD, b"nobody can read this")
    trained = await house.bury(1)
    house.store = Store(house.path / "other.sqlite")
    letters = DeadLetters(house.broker, house.store, house.issuer, ROWS, house.state, house.events, "test")
    house.store.end([(1, 4, "")])
    rows = (await letters.page(0, 10)).rows
    for entry, words in (
        (rows[2].id, "it belongs to an evaluation"),
        (rows[1].id, "its group is unknown"),
        (trained, "was trained in step 4"),
        ("9-9", "there is no dead letter"),
    ):
        with pytest.raises(ConfigError, match=words):
            await letters.requeue(entry, "x")
    house.state.phase = RunPhase.FINISHED
    with pytest.raises(ConfigError, match="the run is finished"):
        await house.dead.requeue(trained, "x")


async def test_who_reports_a_fate_does_not_move_what_waits(house: House) -> None:
    """The journal wins: fates taken back open groups again, and the waiting prompt still comes behind them."""
    await house.issue()
    entry = await house.bury(1)
    await house.dead.requeue(entry, "x")
    await house.state.register_trainer(pb.RegisterTrainerRequest(address="nowhere:1", boot_id="t"))
    assert [group.group_index for group in house.store.open_groups()] == [0, 1, 2]
    assert await house.issue() == []
    assert house.store.requeued() == {1: None}


async def test_a_group_that_is_open_is_refused_for_it_is_issued_again_by_itself(house: House) -> None:
    await house.issue()
    data = (await house.broker.live(StreamName.PROMPTS))[1]
    dead = dead_put(data, DropReason.POISON, "bad_checksum", "rollout")
    house.broker.put(dead.stream, dead.data, note=dead.note)
    entry = (await house.broker.newest(StreamName.DEAD, before="", count=1))[0].id
    with pytest.raises(ConfigError, match=r"g00000001 is open: .* issued again automatically"):
        await house.dead.requeue(entry, "x")
