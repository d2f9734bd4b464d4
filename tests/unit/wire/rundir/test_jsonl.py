"""Lines of JSON: what a crash has cut is skipped by readers and removed by the writer."""

import json
import os
from pathlib import Path

import pytest

from headrace.wire.rundir import jsonl
from headrace.wire.rundir.evals import EvalLog, evals_of
from headrace.wire.rundir.metrics import MetricsLog, steps_of

ODD = b'null\n3\n[]\n{"step": "\xff"}\n' + b"[" * 100_000 + b"\n\n"


def test_lines_that_are_not_objects_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert list(jsonl.read(path)) == list(jsonl.read_backwards(path)) == []
    assert jsonl.last(path) == {}
    path.write_bytes(b'{"a": 1}\n' + ODD + b'{"a": NaN}\n{"a": 3')
    assert list(jsonl.read(path)) == [{"a": 1}, {"a": None}]
    assert list(jsonl.records(path.read_bytes())) == [{"a": 1}, {"a": None}]
    assert list(jsonl.read_backwards(path)) == [{"a": None}, {"a": 1}]
    assert jsonl.last(path) == {"a": None}


@pytest.mark.parametrize("torn", [b"", b'{"step": 4', b"x" * 200_000])
@pytest.mark.parametrize("whole", [b"", b'{"step": 3}\n', b'{"step": 3}\n' * 20_000])
def test_the_writer_removes_a_cut_line_and_nothing_else(tmp_path: Path, whole: bytes, torn: bytes) -> None:
    path = tmp_path / "lines"
    jsonl.repair(path)
    assert not path.exists()
    path.write_bytes(whole + torn)
    jsonl.repair(path)
    assert path.read_bytes() == whole


def test_a_resumed_writer_goes_on_after_the_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "lo')
    log = MetricsLog(path)
    for step in (1, 2):
        log.append(step, {"loss": 9.0})
    assert steps_of(tmp_path) == {1: {"step": 1, "loss": 0.5}, 2: {"step": 2, "loss": 9.0}}


def test_an_evaluation_is_on_disk_when_it_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evals.jsonl").write_text('{"version": 0, "accuracy": 0.1}\n{"ver')
    log, synced, fsync = EvalLog(tmp_path), list[str](), os.fsync

    def counted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").read_text())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    log.append({"version": 5, "accuracy": None})
    assert [json.loads(line)["version"] for line in synced[0].splitlines()] == [0, 5] and len(synced) == 1
    assert log.known == [{"version": 0, "accuracy": 0.1}]
    assert evals_of(tmp_path) == [{"version": 0, "accuracy": 0.1}, {"version": 5, "accuracy": None}]
