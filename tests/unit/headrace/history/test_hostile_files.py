"""Files of a run directory that were made to break their reader: each is a problem with its name, none a traceback."""

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from headrace.inspect.history.check import check_run
from headrace.wire.contracts import group_id
from headrace.wire.errors import ConfigError
from tests.unit.headrace.history.test_check import RUN, Forge


@pytest.mark.parametrize(
    "text", ["max_staleness = inf", "max_staleness = nan", "x = " + "[" * 5000 + "]" * 5000, f"x = {'1' * 5000}"]
)
def test_a_config_that_cannot_be_taken_is_refused_with_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text(f"[run]\n{text}\n")
    with pytest.raises(ConfigError, match=r"is not a run directory: .*config/run\.toml: "):
        check_run(tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "state.json"])
def test_a_file_of_a_checkpoint_that_is_nested_too_deeply_is_a_problem(tmp_path: Path, name: str) -> None:
    forge = Forge(tmp_path).run()
    folder = tmp_path / "checkpoints" / "step-000003"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("[" * 100_000)
    digest = hashlib.sha256((folder / "state.json").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"sha256": {"state.json": digest}}))
    if name == "manifest.json":
        (folder / name).write_text("[" * 100_000)
    assert forge.check().problems == (f"the checkpoint of step 3 cannot be resumed from: {name} is no JSON object",)


@pytest.mark.parametrize(
    "spans", ["[3]", "[" * 100_000, '[[0, 2, 3, "d"]]', '[["a", 2, "1.0", "d"]]', "{", '[[0, 2, "x", "d"]]']
)
@pytest.mark.parametrize("stale", ["mask", "drop"])
def test_invalid_spans_in_rollouts_are_a_problem(tmp_path: Path, spans: str, stale: str) -> None:
    forge = Forge(tmp_path, max_staleness=1, stale=stale).run()
    row = {"group_id": group_id(RUN, 0), "rollout_index": 0, "replica_id": "replica-0", "tokens": 2, "spans": spans}
    row |= {"trained_tokens": 2, "token_advantages": None, "reward": 1.0}
    (tmp_path / "rollouts").mkdir()
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "rollouts" / "step-000001.parquet")
    if stale != "mask":
        (tmp_path / "journal" / "payloads" / "000001-00000001.batch").unlink()
    assert any("step 1 cannot be read" in one for one in forge.check().problems)
