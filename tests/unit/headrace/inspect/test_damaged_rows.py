"""A damaged line of a run's files is passed over by every verb that shows them."""

import json
from pathlib import Path
from typing import Any

from headrace.inspect.results import StepTail, summarize
from headrace.inspect.screen import eval_line, step_line
from headrace.wire.rundir.evals import evals_of
from headrace.wire.rundir.metrics import last_steps, steps_of

GOOD = [{"accuracy": 0.5}, {"accuracy": None}, {}]
BAD: list[Any] = [None, "1", 1.5, True, [1]]


def write(path: Path, key: str) -> None:
    rows: list[Any] = [{key: number, **row} for number, row in enumerate(GOOD)]
    rows += [{key: number, "accuracy": 0.5} for number in BAD]
    rows += [{key: 7, "accuracy": "0.5"}, {key: 7, "accuracy": 10**400}, None, 3, []]
    with path.open("wb") as file:
        file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b'{"' + key.encode() + b'": "\xff"}\n')


def test_only_sound_rows_are_shown(tmp_path: Path) -> None:
    tail = StepTail(tmp_path)
    write(tmp_path / "metrics.jsonl", "step")
    write(tmp_path / "evals.jsonl", "version")
    assert [row["version"] for row in evals_of(tmp_path)] == list(steps_of(tmp_path)) == [0, 1, 2]
    assert [row["step"] for row in last_steps(tmp_path, 9)] == [0, 1, 2]
    summary = summarize(tmp_path, 1.0)
    assert (summary.eval_before, summary.eval_after, summary.steps) == (0.5, None, 3)
    rows = tail.read()
    assert [eval_line(row) if "version" in row else step_line(row) for row in rows][2:4] == [
        "step 2",
        "held-out accuracy 50.0% at version 0 (0 prompts)",
    ]
    assert len(rows) == 6
