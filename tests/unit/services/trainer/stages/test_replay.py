import pytest

from headrace.services.trainer.durability.fate_table import GroupFate
from headrace.services.trainer.stages.restore import MAX_REPLAY_DEATHS, PoisonBatchError, read_history, replay
from headrace.services.trainer.step.step import StepInterruptedError
from headrace.wire.contracts import Header, Message, Purpose, encode, group_id
from headrace.wire.errors import DataError
from headrace.wire.journal import (
    DroppedRecord,
    JournalDamagedError,
    JournalWriter,
    prune_payloads,
    read_journal,
    read_lengths,
)
from tests.unit.services.trainer.builders import scored_group


def entry(index):
    header = Header(run_id="run", purpose=Purpose.TRAIN, group_index=index, group_id=group_id("run", index))
    return encode(Message(header=header, body=scored_group(index)))


def write(journal, step, *indices):
    journal.batch(step, [(i, group_id("run", i)) for i in indices], [entry(i) for i in indices])


@pytest.fixture
def journal(tmp_path):
    return JournalWriter.open(tmp_path / "journal", incarnation=1, version=0, weights_digest="d0", read_to={})


def history(journal):
    return read_history(list(read_journal(journal.folder)))


class Death(BaseException):
    pass


def test_batches_after_the_checkpoint_are_retrained_in_order(journal):
    for step in (1, 2, 3):
        write(journal, step, 2 * step, 2 * step + 1)
    seen = []
    replay(
        journal.folder,
        history(journal),
        after_step=1,
        train=lambda step, batch: seen.append((step, [group.group_index for group in batch])),
    )
    assert seen == [(2, [4, 5]), (3, [6, 7])]


def test_the_replayed_group_is_the_one_that_was_journaled(journal):
    write(journal, 1, 3)
    found = []
    replay(journal.folder, history(journal), after_step=0, train=lambda _, batch: found.extend(batch))
    expected = scored_group(3)
    assert found[0].data == entry(3)
    assert [s.value for s in found[0].scored.scores] == [s.value for s in expected.scores]
    assert (found[0].scored.group.rollouts[1].token_ids == expected.group.rollouts[1].token_ids).all()


def test_fates_and_digests_come_out_of_the_journal(journal):
    write(journal, 1, 0, 2)
    journal.dropped([DroppedRecord(group_index=1, group_id="run/g1", reason="poison")])
    journal.step_done(1, "d1")
    found = history(journal)
    assert found.digests == {0: "d0", 1: "d1"}
    assert found.last_step == 1
    assert GroupFate(group_index=1, group_id="run/g1", reason="poison") in found.fates
    assert {fate.group_index: fate.step for fate in found.fates} == {0: 1, 1: 0, 2: 1}


def test_a_batch_that_kills_the_trainer_three_times_stops_the_run_naming_step_and_groups(journal):
    write(journal, 1, 0)
    write(journal, 2, 7)

    def die(step, _):
        if step == 2:
            raise Death

    for _ in range(MAX_REPLAY_DEATHS):
        with pytest.raises(Death):
            replay(journal.folder, history(journal), after_step=0, train=die)
    with pytest.raises(PoisonBatchError, match=r"step 2 .* 3 times .* run/g00000007"):
        replay(journal.folder, history(journal), after_step=0, train=die)


def test_a_stop_or_a_success_does_not_count_as_a_death(journal):
    write(journal, 1, 0)

    def stop(*_):
        raise StepInterruptedError

    for _ in range(MAX_REPLAY_DEATHS + 1):
        with pytest.raises(StepInterruptedError):
            replay(journal.folder, history(journal), after_step=0, train=stop)
    for _ in range(MAX_REPLAY_DEATHS + 1):
        replay(journal.folder, history(journal), after_step=0, train=lambda *_: None)


def test_a_payload_that_is_gone_is_explained(journal):
    write(journal, 1, 0)
    prune_payloads(journal.folder, 1)
    with pytest.raises(DataError, match="step 1 must be replayed"):
        replay(journal.folder, history(journal), after_step=0, train=lambda *_: None)


def test_contradictions_in_the_journal_are_damage(journal):
    write(journal, 1, 0)
    with pytest.raises(JournalDamagedError, match="step 3 follows step 1"):
        write(journal, 3, 1)
        history(journal)


def test_a_group_that_ends_twice_is_damage(journal):
    write(journal, 1, 0)
    write(journal, 2, 0)
    with pytest.raises(JournalDamagedError, match="ends a second time"):
        history(journal)


def test_a_zombies_batch_of_the_same_step_is_void(journal):
    write(journal, 1, 0)
    read = list(read_journal(journal.folder))
    after = JournalWriter.open(
        journal.folder, incarnation=2, version=1, weights_digest="d1", read_to=read_lengths(read)
    )
    journal.fence = lambda: None  # It looked just before its successor came.
    write(journal, 2, 5)
    write(after, 2, 6)
    assert history(journal).batches[2].group_indices == (6,)


def test_a_step_is_done_only_where_that_was_journaled(tmp_path):
    first = JournalWriter.open(tmp_path, incarnation=1, version=0, weights_digest="d0", read_to={})
    write(first, 1, 0, 1)
    first.close()
    lengths = read_lengths(list(read_journal(tmp_path)))
    JournalWriter.open(tmp_path, incarnation=2, version=1, weights_digest="d1", read_to=lengths).close()
    found = read_history(list(read_journal(tmp_path)))
    assert found.digests[1] == "d1"
    assert found.done == frozenset()
