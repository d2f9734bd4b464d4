"""A parquet file after a power failure: its rows, or a refusal that names it; never other rows."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.wire.errors import DataError
from headrace.wire.rundir import prompts
from tests.crash import SECTOR, leftovers

ROWS = [
    {"sample_id": f"s{i}", "token_ids": random.Random(i).choices(range(60000), k=40), "text": f"row {i} " * 9}
    for i in range(300)
]
NAMES = ("sample_id", "token_ids", "text")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, pa.Table]:
    path = tmp_path_factory.mktemp("prompts") / "prompts.parquet"
    prompts.write(path, ROWS)
    return path.read_bytes(), prompts.read(path, *NAMES)


def survives(path: Path, data: bytes, table: pa.Table) -> bool:
    path.write_bytes(data)
    try:
        found = prompts.read(path, *NAMES)
    except DataError as error:
        assert str(path) in str(error)
        return False
    assert found.equals(table), "other rows than were written"
    return True


def test_any_lost_sector_is_refused_or_costs_no_row(whole: tuple[bytes, pa.Table], tmp_path: Path) -> None:
    data, table = whole
    refused = 0
    for at in range(0, len(data), SECTOR):
        lost = bytearray(data)
        lost[at : at + SECTOR] = bytes(len(data[at : at + SECTOR]))
        refused += not survives(tmp_path / "p.parquet", bytes(lost), table)
    assert refused > len(data) // SECTOR // 2


def test_any_mixture_of_sectors_and_any_cut_is_too(whole: tuple[bytes, pa.Table], tmp_path: Path) -> None:
    data, table = whole
    for left in leftovers(b"", data):
        survives(tmp_path / "p.parquet", left, table)


def test_a_file_of_before_the_checksums_is_read(whole: tuple[bytes, pa.Table], tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(whole[1], tmp_path / "old.parquet")
    assert prompts.read(tmp_path / "old.parquet", *NAMES).equals(whole[1])
