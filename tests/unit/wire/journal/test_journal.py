import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.errors import FencedError
from headrace.wire.journal import (
    BatchRecord,
    DroppedRecord,
    IncarnationRecord,
    JournalDamagedError,
    JournalWriter,
    StepDoneRecord,
    highest_incarnation,
    prune_payloads,
    read_journal,
    read_lengths,
    read_payload,
)
from headrace.wire.journal.framing import MAGIC, frame, unframe
from headrace.wire.journal.reader import segment_name


def open_next(folder, version=0):
    read = list(read_journal(folder)) if folder.exists() else []
    number = highest_incarnation(folder) + 1
    return JournalWriter.open(
        folder, incarnation=number, version=version, weights_digest="w", read_to=read_lengths(read)
    )


def records(folder):
    return [item.record for item in read_journal(folder)]


def steps(folder):
    return [record.step for record in records(folder) if isinstance(record, BatchRecord)]


def write(writer, step):
    writer.batch(step, [(2 * step, f"g{2 * step}"), (2 * step + 1, f"g{2 * step + 1}")], [b"a" * step, b""])


def test_journal_records_are_read_in_order_with_their_payloads(tmp_path):
    writer = open_next(tmp_path / "journal")
    write(writer, 1)
    writer.dropped([DroppedRecord(group_index=4, group_id="g4", reason="stale")])
    writer.step_done(1, "after")
    head, batch, drop, done = records(writer.folder)
    assert head == IncarnationRecord(incarnation=1, version=0, weights_digest="w", seals={})
    assert (batch.step, batch.group_indices, batch.group_ids) == (1, (2, 3), ("g2", "g3"))
    assert read_payload(writer.folder, batch) == [b"a", b""]
    assert drop == DroppedRecord(group_index=4, group_id="g4", reason="stale")
    assert done == StepDoneRecord(step=1, weights_digest="after")


def blind(*writers):
    """Writers that looked for a successor just before it came: what they write after is for the seals to void."""
    for writer in writers:
        writer.fence = lambda: None


def test_a_new_incarnation_makes_a_zombies_later_records_void(tmp_path):
    zombie = open_next(tmp_path)
    write(zombie, 1)
    successor = open_next(tmp_path, version=1)
    blind(zombie, successor)
    write(zombie, 2)
    write(successor, 2)
    third = open_next(tmp_path, version=2)
    write(zombie, 3)
    write(successor, 3)
    found = [(item.incarnation, item.record.step) for item in read_journal(tmp_path) if hasattr(item.record, "step")]
    assert found == [(1, 1), (2, 2)]
    assert list(records(tmp_path)[-1].seals) == [segment_name(1), segment_name(2)]
    third.close()


def test_a_segment_whose_writer_came_between_read_and_open_is_void(tmp_path):
    first = open_next(tmp_path)
    write(first, 1)
    read = list(read_journal(tmp_path))
    late = open_next(tmp_path, version=1)
    write(late, 2)
    JournalWriter.open(tmp_path, incarnation=3, version=1, weights_digest="w", read_to=read_lengths(read))
    assert steps(tmp_path) == [1]


def test_a_lower_or_equal_incarnation_is_fenced(tmp_path):
    open_next(tmp_path)
    open_next(tmp_path)
    for number in (1, 2):
        with pytest.raises(FencedError):
            JournalWriter.open(tmp_path, incarnation=number, version=0, weights_digest="", read_to={})


def test_only_covered_payloads_go_and_every_fact_stays(tmp_path):
    writer = open_next(tmp_path)
    for step in (1, 2, 3):
        write(writer, step)
    before = records(tmp_path)
    assert prune_payloads(tmp_path, 2) == 2
    assert records(tmp_path) == before
    assert read_payload(tmp_path, before[3]) == [b"aaa", b""]
    with pytest.raises(FileNotFoundError):
        read_payload(tmp_path, before[1])


def test_an_altered_payload_is_refused(tmp_path):
    writer = open_next(tmp_path)
    write(writer, 3)
    batch = records(tmp_path)[1]
    path = tmp_path / "payloads" / batch.payload
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalDamagedError, match="step 3"):
        read_payload(tmp_path, batch)


def test_a_record_is_durable_before_the_call_returns(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1])
    writer = open_next(tmp_path)
    synced.clear()
    write(writer, 1)
    payload, segment = tmp_path / "payloads" / "000001-00000001.batch", tmp_path / segment_name(1)
    assert synced == [str(payload), str(payload.parent), str(segment)]


RECORDS = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6)


def segment(parts):
    return MAGIC + b"".join(frame(kind, payload) for kind, payload in parts)


def whole(data):
    return [(kind, payload) for kind, payload, _ in unframe(data, "x")]


@given(parts=RECORDS, data=st.data())
def test_a_tail_torn_anywhere_leaves_the_whole_records_before_it(parts, data):
    content = segment(parts)
    cut = data.draw(st.integers(0, len(content)))
    found = whole(content[:cut])
    assert found == parts[: len(found)]
    assert cut < len(content) or found == parts
    assert len(segment(parts[: len(found) + 1])) > cut or found == parts


@given(parts=RECORDS, zeros=st.integers(1, 700), data=st.data())
def test_a_tail_of_unwritten_zeros_is_torn_too(parts, zeros, data):
    assert whole(segment(parts) + bytes(zeros)) == parts


@settings(max_examples=300)
@given(parts=RECORDS.filter(bool), data=st.data())
def test_a_flipped_bit_anywhere_raises_and_never_alters_a_record(parts, data):
    content = bytearray(segment(parts))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = whole(bytes(content))
    except JournalDamagedError as error:
        assert "offset" in str(error)
    else:
        # only the very last record can pass for torn, and only when it ends in zeros
        assert found == parts[:-1] and not any(content[-1:])


def damaged(folder, change):
    path = folder / segment_name(1)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(JournalDamagedError) as error:
        list(read_journal(folder))
    return str(error.value)


@pytest.fixture
def two_segments(tmp_path):
    first = open_next(tmp_path)
    write(first, 1)
    open_next(tmp_path, version=1)
    return tmp_path


def test_damage_names_file_and_offset(two_segments):
    text = damaged(two_segments, lambda data: data[:30] + b"?" + data[31:])
    assert segment_name(1) in text and "offset 8" in text


def test_a_sealed_segment_that_was_cut_or_removed_is_damage(two_segments):
    assert "was cut" in damaged(two_segments, lambda data: data[:-3])
    (two_segments / segment_name(1)).unlink()
    with pytest.raises(JournalDamagedError, match="gone"):
        list(read_journal(two_segments))


def test_forged_segments_are_refused(tmp_path):
    open_next(tmp_path)
    head = frame(1, b'{"incarnation":7,"version":0,"weights_digest":"","seals":{}}')
    assert "head" in damaged(tmp_path, lambda data: MAGIC + head)
    assert "second head" in damaged(tmp_path, _twice)
    assert "not a journal" in damaged(tmp_path, lambda data: b"something else")
    assert "unknown record kind" in damaged(tmp_path, lambda data: MAGIC + frame(99, b"{}"))
    assert "BatchRecord" in damaged(tmp_path, lambda data: MAGIC + frame(2, b"[1]"))


def _twice(data):
    head = frame(1, b'{"incarnation":1,"version":0,"weights_digest":"","seals":{}}')
    return MAGIC + head + head


def test_a_crash_before_the_head_is_whole_leaves_nothing_that_counts():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(open_next(folder), 1)
        (folder / segment_name(2)).write_bytes(MAGIC[:5])
        assert steps(folder) == [1]
        assert highest_incarnation(folder) == 2
        write(open_next(folder), 2)
        assert steps(folder) == [1, 2]


def test_nothing_follows_a_write_that_failed(tmp_path, monkeypatch):
    journal = JournalWriter.open(tmp_path, incarnation=1, version=0, weights_digest="d", read_to={})
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, bytes(data)[:3]) if len(data) > 3 else _full(file))
    with pytest.raises(OSError, match="the disk is full"):
        journal.step_done(1, "a")
    monkeypatch.undo()
    with pytest.raises(OSError, match="earlier write"):
        journal.step_done(1, "a")
    journal.close()
    assert [item.incarnation for item in read_journal(tmp_path)] == [1]


def _full(_file):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_life_that_is_over_writes_no_more(tmp_path):
    zombie = JournalWriter.open(tmp_path, incarnation=1, version=0, weights_digest="d", read_to={})
    successor = JournalWriter.open(tmp_path, incarnation=2, version=0, weights_digest="d", read_to={})
    with pytest.raises(FencedError, match="incarnation 2"):
        zombie.step_done(1, "a")
    successor.step_done(1, "a")
    zombie.close()
    successor.close()
