"""What was given up is shown with its reason; its prompt is issued again once, as a new group."""

import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from headrace.services.orchestrator.issuing.dead_letters import DeadLetters
from headrace.services.orchestrator.issuing.messages import eval_prompt
from headrace.services.orchestrator.issuing.prompts import PromptOrder
from headrace.services.orchestrator.state.run_state import RunPhase
from headrace.services.orchestrator.state.store import Store
from headrace.wire.contracts import DropReason, PromptGroup, decode, encode
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import read_events
from headrace.wire.streams import StreamName
from headrace.wire.streams.worker import bury_puts, dead_put
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.orchestrator.issuing.test_issuer import ROWS, Office

BATCH = 3


class House(Office):
    """An office with its dead letters, in a run that goes on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.taken = self.step = 0

    def build(self) -> None:
        super().build()
        self.state.phase = RunPhase.RUNNING
        self.dead = DeadLetters(self.broker, self.store, self.issuer, ROWS, self.state, self.events, "test")

    async def issue(self) -> list[tuple[int, str]]:
        """(index, sample) of what is issued now."""
        await self.issuer.issue()
        messages = [decode(data) for data in await self.broker.live(StreamName.PROMPTS)]
        new, self.taken = messages[self.taken :], len(messages)
        return [(one.header.group_index, one.body.sample_id) for one in new if isinstance(one.body, PromptGroup)]

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


def usual(indices: Sequence[int], moved: int = 0) -> list[tuple[int, str]]:
    """What the run's order gives these groups when `moved` groups before them were issued again."""
    order = PromptOrder(len(ROWS), seed=1)
    return [(index, ROWS[order.row(index - moved)].sample_id) for index in indices]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    yield House(tmp_path)


async def test_a_letter_names_its_group_and_the_reason(house: House) -> None:
    issued = dict(await house.issue())
    await house.bury(1)
    await house.bury(2, DropReason.POISON)
    page = await house.dead.page(0, 10)
    assert page.total == 2
    newest, oldest = page.rows
    assert (newest.group_index, newest.reason, newest.service) == (2, "poison", "reward")
    assert oldest.error == "gave 1 up" and oldest.group_id == "test/g00000001" and oldest.purpose == "train"
    assert oldest.prompt == issued[1][1:] and oldest.bytes > 0 and not oldest.requeued
    assert (await house.dead.page(1, 10)).rows == (oldest,)


async def test_a_requeued_prompt_takes_the_next_free_index_and_no_prompt_is_lost(house: House) -> None:
    issued = dict(await house.issue())
    entry = await house.bury(1)
    assert "as soon as credit allows" in await house.dead.requeue(entry, "dashboard")
    assert await house.issue() == [(3, issued[1])]
    await house.train(0, 2, 3)
    assert await house.issue() == usual([4, 5, 6], moved=1)
    assert "issued again as test/g00000003" in await house.dead.requeue(entry, "dashboard")
    assert (await house.dead.page(0, 1)).rows[0].requeued


async def test_repeated_requests_issue_a_letter_once_across_restarts(house: House) -> None:
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


async def test_several_letters_keep_their_order_and_stay_within_credit(house: House) -> None:
    issued = dict(await house.issue())
    entries = [await house.bury(index) for index in (2, 0)]
    for entry in entries:
        await house.dead.requeue(entry, "x")
    assert await house.issue() == [(3, issued[2]), (4, issued[0])]
    assert len(house.store.open_groups()) == BATCH


async def test_a_kill_at_any_statement_of_an_issue_changes_nothing(house: House) -> None:
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


async def test_a_letter_that_cannot_be_issued_again_is_refused_with_the_reason(house: House) -> None:
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


async def test_a_trainers_registration_does_not_issue_waiting_letters(house: House) -> None:
    """The journal wins: fates taken back open groups again, and the waiting prompt still comes behind them."""
    await house.issue()
    entry = await house.bury(1)
    await house.dead.requeue(entry, "x")
    await house.state.register_trainer(pb.RegisterTrainerRequest(address="nowhere:1", boot_id="t"))
    assert [group.group_index for group in house.store.open_groups()] == [0, 1, 2]
    assert await house.issue() == []
    assert house.store.requeued() == {1: None}


async def test_a_letter_of_an_open_group_is_refused(house: House) -> None:
    await house.issue()
    data = (await house.broker.live(StreamName.PROMPTS))[1]
    dead = dead_put(data, DropReason.POISON, "bad_checksum", "rollout")
    house.broker.put(dead.stream, dead.data, note=dead.note)
    entry = (await house.broker.newest(StreamName.DEAD, before="", count=1))[0].id
    with pytest.raises(ConfigError, match=r"g00000001 is open: .* issued again automatically"):
        await house.dead.requeue(entry, "x")
