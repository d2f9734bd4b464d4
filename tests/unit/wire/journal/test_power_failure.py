"""A journal after a power failure at any sector of a write: a clean prefix or a named refusal, never other records."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.wire.journal import DroppedRecord, JournalDamagedError, JournalWriter, Record, read_journal
from headrace.wire.journal.reader import segment_name
from tests.crash import leftovers, lost_tails

Write = tuple[bytes, bytes, int, int]
"""The file before and after one fsynced write, and how many records each holds."""


def journal(folder: Path) -> tuple[list[Write], list[Record]]:
    """A segment with writes of every size, from a part of a sector to several pages."""
    writer = JournalWriter.open(folder, incarnation=1, version=0, weights_digest="d" * 64, read_to={})
    path = folder / segment_name(1)
    writes: list[Write] = []
    for step in range(1, 8):
        for act in (
            lambda step=step: writer.batch(step, [(i, f"run/{i:09}") for i in range(step * step * 20)], [b"m"]),
            lambda step=step: writer.dropped(
                [DroppedRecord(group_index=i, group_id=f"run/{i}", reason="stale") for i in range(step * 7)]
            ),
            lambda step=step: writer.step_done(step, "e" * 64),
        ):
            before, known = path.read_bytes(), len(list(read_journal(folder)))
            act()
            writes.append((before, path.read_bytes(), known, len(list(read_journal(folder)))))
    writer.close()
    return writes, [item.record for item in read_journal(folder)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Write], list[Record]]:
    return journal(tmp_path_factory.mktemp("journal"))


def read(folder: Path, data: bytes) -> Sequence[Record]:
    (folder / segment_name(1)).write_bytes(data)
    return [item.record for item in read_journal(folder)]


def each_write(written: tuple[list[Write], list[Record]]) -> Iterator[Write]:
    writes, _ = written
    assert any(len(after) - len(before) > 3 * 4096 for before, after, *_ in writes)
    yield from writes


@pytest.mark.parametrize("unit", [512, 4096])
def test_a_write_whose_last_sectors_or_pages_are_lost_is_torn_and_never_damage(
    written: tuple[list[Write], list[Record]], tmp_path: Path, unit: int
) -> None:
    for before, after, known, whole in each_write(written):
        for data in lost_tails(before, after, unit):
            found = read(tmp_path, data)
            assert found == written[1][: len(found)] and known <= len(found) < whole


def test_a_write_with_lost_sectors_reads_as_a_prefix_or_reports_damage(
    written: tuple[list[Write], list[Record]], tmp_path: Path
) -> None:
    prefixes = 0
    for before, after, known, _ in each_write(written):
        for data in leftovers(before, after):
            try:
                found = read(tmp_path, data)
            except JournalDamagedError as error:
                assert segment_name(1) in str(error) and "offset" in str(error)
            else:
                prefixes += 1
                assert found == written[1][: len(found)] and len(found) >= known
    assert prefixes > 100


def test_a_flipped_byte_before_zeros_stays_damage(written: tuple[list[Write], list[Record]], tmp_path: Path) -> None:
    _, after, _, _ = written[0][-1]
    for place in range(len(after) - 40, len(after)):
        for zeros in (0, 100, 5000):
            data = bytearray(after)
            data[place] ^= 1
            with pytest.raises(JournalDamagedError, match="offset"):
                read(tmp_path, bytes(data) + bytes(zeros))
