"""The index of rollouts grows with the folder; damaged, replaced and older files are told apart."""

from pathlib import Path

import pytest

from headrace.services.orchestrator.dashboard.readers import rollout_index as index_module
from headrace.services.orchestrator.dashboard.readers.query import Query
from headrace.services.orchestrator.dashboard.readers.rollout_index import RolloutIndex
from tests.annotation import write_step
from tests.dashboard_run import write_rollout_file


async def read(index: RolloutIndex) -> RolloutIndex:
    while await index.look():
        pass
    return index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rollouts"


async def test_files_come_newest_first_and_end_up_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_AT_ONCE", 2)
    for step in range(1, 6):
        write_rollout_file(folder, step, step * 10, 1)
    index = RolloutIndex(folder)
    assert await index.look()
    assert set(index.facts["step"].to_pylist()) == {4, 5} and index.reading
    await read(index)
    assert not index.reading
    assert index.facts["step"].to_pylist() == [step for step in range(1, 6) for _ in range(4)]
    write_rollout_file(folder, 6, 60, 2)
    await read(index)
    assert len(index.facts) == 28


async def test_a_row_has_its_own_text(folder: Path) -> None:
    for step in (1, 2, 3):
        write_rollout_file(folder, step, step * 2, 2)
    index = await read(RolloutIndex(folder))
    found = await index.find(Query(step_from=2, step_to=2, group_index=5, sort="step"))
    rows = await index.listed(found)
    assert [row.rollout_index for row in rows] == [0, 1, 2, 3]
    table = await index.table(2, 5, ("completion", "group_id", "prompt"))
    assert table is not None
    for row, whole in zip(rows, table.to_pylist(), strict=True):
        assert row.completion == whole["completion"][:160] and row.group_id == whole["group_id"] == "demo/g00000005"
    assert await index.table(2, 99, ("completion",)) is None


async def test_a_replaced_file_replaces_its_rollouts_and_their_texts(folder: Path) -> None:
    for step in (1, 2):
        write_rollout_file(folder, step, step, 1)
    index = await read(RolloutIndex(folder))
    query = Query(text="what is")
    assert len((await index.find(query)).positions) == 8
    write_step(folder.parent, 1, [["quite another", "text"]], reward=0.5)
    await read(index)
    assert index.facts["step"].to_pylist() == [1, 1, 2, 2, 2, 2]
    found = await index.find(Query(text="QUITE"))
    assert [row.completion for row in await index.listed(found)] == ["quite another"]
    assert len((await index.find(query)).positions) == 4


async def test_a_damaged_or_half_written_file_is_passed_over_and_told(folder: Path) -> None:
    whole = write_rollout_file(folder, 1, 1, 1)
    (folder / "step-000002.parquet").write_bytes(whole.read_bytes()[:-20])
    (folder / ".step-000003.parquet").write_bytes(b"still being written")
    (folder / "notes.txt").write_text("no rollouts")
    index = await read(RolloutIndex(folder))
    assert index.facts["step"].to_pylist() == [1, 1, 1, 1]
    assert list(index.damaged) == [2] and "step-000002.parquet" in index.damaged[2]
    write_rollout_file(folder, 2, 2, 1)
    await read(index)
    assert len(index.facts) == 8 and not index.damaged
