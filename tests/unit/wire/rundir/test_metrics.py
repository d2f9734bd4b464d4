"""The newest steps are read from the end of the file."""

import json
from pathlib import Path

import pytest

from headrace.wire.rundir.jsonl import read_backwards
from headrace.wire.rundir.metrics import last_steps


def write(folder: Path, rows: list[dict[str, object]], torn: str = "") -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 16])
def test_reading_backwards_yields_whole_lines_for_any_block_size(tmp_path: Path, block: int) -> None:
    rows: list[dict[str, object]] = [{"step": step, "text": "x" * (step % 13)} for step in range(1, 40)]
    write(tmp_path, rows, '{"step": 40')
    assert list(read_backwards(tmp_path / "metrics.jsonl", block)) == rows[::-1]


def test_the_newest_line_of_a_step_counts(tmp_path: Path) -> None:
    write(tmp_path, [{"step": 1, "loss": 1}, {"step": 2, "loss": 2}, {"step": 2, "loss": 3}, {"step": 3, "loss": 4}])
    assert last_steps(tmp_path, 2) == [{"step": 2, "loss": 3}, {"step": 3, "loss": 4}]
    assert [row["loss"] for row in last_steps(tmp_path, 99)] == [1, 3, 4]
