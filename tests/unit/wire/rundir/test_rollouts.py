"""The files of rollouts: one list of columns, older files with fewer, damaged ones."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import JsonValue

from headrace.wire.errors import DataError
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.layout import RunPaths


def test_rollouts_can_be_read_whole_by_rows_and_by_group(tmp_path: Path) -> None:
    rows = [{"step": 3, "group_id": f"g{number // 4}", "rollout_index": number % 4} for number in range(600)]
    path = rollouts.write(tmp_path / "rollouts", 3, rows)
    assert path == RunPaths(tmp_path).rollout_file(3) and path.name == "step-000003.parquet"
    assert rollouts.read(path, ("group_id", "rollout_index")).to_pylist() == [
        {"group_id": row["group_id"], "rollout_index": row["rollout_index"]} for row in rows
    ]
    some = rollouts.read(path, ("group_id",), (255, 258)).to_pylist()
    assert some == [{"group_id": f"g{number // 4}"} for number in (255, 256, 257)]
    assert [row["rollout_index"] for row in rollouts.read_group(path, "g7").to_pylist()] == [0, 1, 2, 3]
    assert rollouts.read_group(path, "other").num_rows == 0
    assert list(rollouts.files(tmp_path / "rollouts")) == [3] and rollouts.files(tmp_path / "none") == {}


def test_an_older_file_lacks_columns_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    old, damaged = tmp_path / "step-000001.parquet", tmp_path / "step-000002.parquet"
    pq.write_table(pa.table({"group_id": ["g"], "reward": [1.0]}), old)
    damaged.write_bytes(b"PAR1 and nothing else")
    assert rollouts.read(old, ("group_id", "spans")).column_names == ["group_id"]
    for path in (damaged, tmp_path / "step-000003.parquet"):
        with pytest.raises(DataError, match=f"{path}: cannot be read as parquet"):
            rollouts.read(path, ("group_id",))
    (tmp_path / ".aside-step-000004.parquet.ab12cd34").write_bytes(b"")
    assert sorted(rollouts.files(tmp_path)) == [1, 2]


def test_a_rows_columns_are_bounded_the_answer_first_and_what_is_left_out_is_counted() -> None:
    columns = {"a": "x" * 2000, "n": {"deep": [1, 2]}, "answer": "y" * 5000} | {f"z{at}": "x" * 999 for at in range(9)}
    found = rollouts.columns_of(rollouts.bounded(columns))
    assert next(iter(found)) == "answer" and len(str(found["answer"])) == 4096 + 3
    assert found["a"] == "x" * 1000 + "..." and found["n"] == {"deep": [1, 2]}
    assert found["..."] == len(columns) - (len(found) - 1) > 0
    assert sum(len(str(value)) for value in found.values()) < 8192 + 200
    assert rollouts.columns_of("[1]") == rollouts.columns_of(None) == {}


@pytest.mark.parametrize(
    ("answer", "text"), [(None, ""), ("yes", "yes"), (7, "7"), (["Zürich", "東京"], '["Zürich", "東京"]')]
)
def test_an_answer_is_text_that_people_can_read(answer: JsonValue, text: str) -> None:
    assert rollouts.answer_text({"answer": answer}) == text and rollouts.answer_text({}) == ""
