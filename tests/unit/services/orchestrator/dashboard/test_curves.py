"""Columns grow with the file; what is written again replaces what was there."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.services.orchestrator.dashboard.readers.curves import Curves


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write(path: Path, *records: dict[str, Any], how: str = "a") -> None:
    with path.open(how) as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def row(step: int, value: float = 0.5, **others: float) -> dict[str, Any]:
    return {"step": step, "a": value, **others}


async def test_each_read_of_the_curves_returns_only_new_rows(path: Path) -> None:
    curves = Curves(path)
    assert await curves.look() is None
    write(path, row(1), row(2))
    fresh = await curves.look()
    assert fresh is not None and not fresh.anew and list(fresh.rows.steps) == [1, 2]
    assert await curves.look() is None
    write(path, row(3, late=7.0))
    fresh = await curves.look()
    assert fresh is not None and list(fresh.rows.steps) == [3]
    assert curves.rows.row(2) == {"step": 3, "a": 0.5, "late": 7.0}
    assert curves.rows.row(0) == {"step": 1, "a": 0.5}


async def test_a_later_line_of_a_step_replaces_the_earlier_one(path: Path) -> None:
    curves = Curves(path)
    write(path, row(1), row(2), row(3))
    await curves.look()
    before = curves.rows
    write(path, row(2, 9.0), row(3, 9.5), row(4))
    fresh = await curves.look()
    assert fresh is not None and fresh.anew
    assert [curves.rows.row(i)["a"] for i in range(4)] == [0.5, 9.0, 9.5, 0.5]
    assert before.row(1)["a"] == 0.5  # A snapshot that somebody reads stays as it was.


async def test_a_rewritten_metrics_file_replaces_the_curves(path: Path) -> None:
    curves = Curves(path)
    write(path, row(1), row(2), row(3))
    await curves.look()
    write(path, row(1, 7.0), how="w")
    fresh = await curves.look()
    assert fresh is not None and fresh.anew
    assert [curves.rows.row(i) for i in range(len(curves.rows))] == [row(1, 7.0)]
    path.unlink()
    fresh = await curves.look()
    assert fresh is not None and fresh.anew and len(curves.rows) == 0
