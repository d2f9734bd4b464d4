"""A parquet file after a power failure: its rows, or a refusal that names it; never other rows."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.wire.errors import DataError
from headrace.wire.rundir import prompts, rollouts
from tests.crash import SECTOR, lost_tails

ROWS = [
    {"sample_id": f"s{i}", "token_ids": random.Random(i).choices(range(60000), k=40), "text": f"row {i} " * 9}
    for i in range(300)
]
TRAINED = [
    {
        "step": 7,
        "group_index": i // 8,
        "group_id": f"run/g{i // 8:08d}",
        "rollout_index": i % 8,
        "prompt": f"prompt {i // 8}",
        "completion": f"completion {i} " * 9,
        "reward": None if i % 50 == 0 else random.Random(i).random(),
        "components": json.dumps({"length": i / 7}),
        "tokens": 40,
        "token_ids": random.Random(i).choices(range(60000), k=40),
        "logprobs": [random.Random(i + j).random() for j in range(40)],
    }
    for i in range(300)
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A file with all its rows, and how it is read."""

    data: bytes
    table: pa.Table
    read: Callable[[Path], pa.Table]

    def survives(self, path: Path, data: bytes) -> bool:
        """Whether what a crash has left is read; its rows are those that were written."""
        path.write_bytes(data)
        try:
            found = self.read(path)
        except DataError as error:
            assert str(path) in str(error)
            return False
        assert found.equals(self.table), "other rows than were written"
        return True


def kind_of(path: Path, names: Sequence[str], read: Callable[..., pa.Table]) -> Kind:
    return Kind(path.read_bytes(), read(path, *names), lambda other: read(other, *names))


@pytest.fixture(scope="module", params=["prompts", "rollouts"])
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "prompts":
        prompts.write(folder / "prompts.parquet", ROWS)
        return kind_of(folder / "prompts.parquet", ("sample_id", "token_ids", "text"), prompts.read)
    path = rollouts.write(folder, 7, TRAINED)
    return kind_of(path, tuple(TRAINED[0]), lambda file, *names: rollouts.read(file, names))


def test_any_lost_sector_is_refused_or_costs_no_row(kind: Kind, tmp_path: Path) -> None:
    refused = 0
    for at in range(0, len(kind.data), SECTOR):
        lost = bytearray(kind.data)
        lost[at : at + SECTOR] = bytes(len(kind.data[at : at + SECTOR]))
        refused += not kind.survives(tmp_path / "p.parquet", bytes(lost))
    assert refused > len(kind.data) // SECTOR // 2


def test_a_file_whose_writes_were_lost_is_rejected(kind: Kind, tmp_path: Path) -> None:
    """Rollouts are renamed without a sync: the name may be on disk before the end of the file is, or any of it."""
    assert not any(kind.survives(tmp_path / "p.parquet", left) for left in (b"", *lost_tails(b"", kind.data)))
