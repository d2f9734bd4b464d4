"""What a run directory says of one group; damage is a note, not an error."""

from pathlib import Path

import pytest

from headrace.cli.explain import explain_in
from headrace.inspect.explain.gather import gather
from headrace.wire.contracts import group_id
from headrace.wire.errors import ConfigError
from tests.unit.headrace.history.test_check import RUN, Forge


def test_gathering_keeps_only_records_of_the_group(tmp_path: Path) -> None:
    Forge(tmp_path).run(steps=3).drop(6, "poison")
    found = gather(tmp_path, group_id(RUN, 3))
    assert [event["event"] for event in found.events] == ["issued", "batch"]
    assert found.batch is not None and found.batch.step == 2 and found.newest_issued == 5
    assert [row["rollout_index"] for row in found.rollouts] == [0] and found.rollouts[0]["reward"] == 1.0
    assert found.rollouts[0]["spans"] == [[0, 2, "1.1", "d1"]]
    dropped = gather(tmp_path, group_id(RUN, 6))
    assert dropped.dropped is not None and dropped.dropped.reason == "poison" and dropped.batch is None


def test_gathering_tolerates_pruned_payloads_and_torn_lines(tmp_path: Path) -> None:
    Forge(tmp_path).run(steps=1)
    for path in (tmp_path / "journal" / "payloads").iterdir():
        path.unlink()
    with next((tmp_path / "events").glob("orchestrator-*")).open("a") as file:
        file.write('{"event": "issued", "group_id": "test/g00000000"')
    found = gather(tmp_path, group_id(RUN, 0))
    assert found.batch is not None and found.rollouts == []
    assert found.notes == ["the texts of step 1 are gone: there is no rollouts/step-000001.parquet"]


def test_explain_rejects_unissued_groups_and_unknown_rollouts(tmp_path: Path) -> None:
    forge = Forge(tmp_path).run(steps=2)
    (forge.run_dir / "config" / "run.toml").write_text(f'[run]\nid = "{RUN}"\n')
    assert explain_in("g0", tmp_path).step == 1
    with pytest.raises(ConfigError, match="was never issued: the newest group is test/g00000003"):
        explain_in("g77", tmp_path)
    with pytest.raises(ConfigError, match="has rollouts 0 to 0, not 4"):
        explain_in("g0/4", tmp_path)
    with pytest.raises(ConfigError, match="is not a run directory"):
        explain_in("g0", tmp_path / "nowhere")
