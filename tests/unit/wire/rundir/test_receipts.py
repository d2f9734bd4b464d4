"""The chain of receipts: extended by what files gain, one line at a time, and never by a torn end."""

import hashlib
import json
from pathlib import Path

import pytest

from headrace.wire.errors import DataError
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.file_digests import config_digests
from headrace.wire.rundir.receipts import last_receipt, read_receipts, take_receipt


def test_a_run_without_files_has_no_receipt(tmp_path: Path) -> None:
    assert take_receipt(tmp_path, step=0) is None
    assert last_receipt(tmp_path) is None


def test_each_receipt_covers_the_bytes_since_the_one_before(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "trainer", 1)
    log.append("step_done", step=1)
    first = take_receipt(tmp_path, step=1)
    assert first is not None and first.line.previous == ""
    assert take_receipt(tmp_path, step=1) == first, "nothing has grown"
    size = log.path.stat().st_size
    log.append("step_done", step=2)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step"')
    second = take_receipt(tmp_path, step=2)
    assert second is not None and second.line.previous == first.value
    parts = second.line.files
    assert (parts["events/trainer-1.jsonl"].begin, parts["metrics.jsonl"].end) == (size, 12)
    assert parts["metrics.jsonl"].sha256 == hashlib.sha256(b'{"step": 1}\n').hexdigest()
    assert read_receipts(tmp_path) == [first, second] and last_receipt(tmp_path) == second
    lines = (tmp_path / "receipts.jsonl").read_bytes().splitlines(keepends=True)
    assert [hashlib.sha256(line).hexdigest() for line in lines] == [first.value, second.value]


def test_a_torn_line_is_replaced_and_a_garbled_one_is_an_error_with_its_line(tmp_path: Path) -> None:
    EventLog(tmp_path, "trainer", 1).append("step_done", step=1)
    path = tmp_path / "receipts.jsonl"
    path.write_bytes(b'{"t": 1')
    taken = take_receipt(tmp_path, step=1)
    assert read_receipts(tmp_path) == [taken]
    path.write_bytes(path.read_bytes() + b'{"t": 1, "step": "x", "previous": "", "files": {}}\n')
    with pytest.raises(DataError, match=r"receipts.jsonl line 2: step: "):
        read_receipts(tmp_path)
    assert last_receipt(tmp_path) is None


def test_a_resumes_config_takes_the_stages_files_over_the_runs(tmp_path: Path) -> None:
    run, stage = tmp_path / "run", tmp_path / "stage"
    for folder, text in ((run, "old"), (stage, "new")):
        (folder / "config").mkdir(parents=True)
        (folder / "config" / "run.toml").write_text(text)
    (run / "prompts.parquet").write_text("rows")
    (run / "config" / "trainer.json").write_text(json.dumps({"http_port": 1}))

    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    assert config_digests(run) == {"config/run.toml": digest("old"), "prompts.parquet": digest("rows")}
    assert config_digests(run, stage) == {"config/run.toml": digest("new"), "prompts.parquet": digest("rows")}
