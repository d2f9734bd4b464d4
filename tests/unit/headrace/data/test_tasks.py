"""Rows of an environment become tasks: whole, named, held out by content, and without a token."""

import json
from pathlib import Path

import pytest

from headrace.config.data import DataTable
from headrace.data.tasks import prepare_tasks, prepared_digest
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.services.environment.identity import environment_digest
from headrace.services.environment.settings import EnvironmentTable
from headrace.services.orchestrator.issuing.prompts import read_prompts
from headrace.wire.errors import DataError

CHAT = [{"role": "user", "content": "1+1"}, {"role": "assistant"}, {"role": "user", "content": "2+2"}]
GAME = EnvironmentTable(name="game:Sums")


def prepared(folder: Path, rows: list[object], **table: object):
    write_model(folder / "model", character_tokenizer("01"), Shape(layers=1, hidden=8), seed=0)
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = DataTable.model_validate({"path": str(folder / "tasks.jsonl"), **table})
    return prepare_tasks(data, GAME, folder / "model", folder, seed=1, vocab_size=4)


def test_a_row_becomes_the_task_and_the_columns_that_scorers_see(tmp_path: Path) -> None:
    rows: list[object] = [{"id": "x", "prompt": "1+1", "deep": {"a": [1]}}, {"a": 2}, {"prompt": CHAT}]
    found = prepared(tmp_path, rows)
    assert (found.prompts, found.eval_prompts, found.stop_token_ids) == (3, 0, (1,))
    first, second, third = read_prompts(tmp_path / "prompts.parquet")
    assert first.environment is not None and json.loads(first.environment.task_json) == rows[0]
    assert (first.sample_id, first.text, first.columns) == ("x", "1+1", rows[0]) and not len(first.token_ids)
    assert second.text == '{"a": 2}' and second.sample_id != "x" and third.text == "2+2"
    assert first.environment.digest == prepared_digest(tmp_path) == environment_digest(GAME)


def test_tasks_are_held_out_by_their_content(tmp_path: Path) -> None:
    found = prepared(tmp_path, [{"n": n % 8} for n in range(10)], eval_size=3)
    trained = {json.dumps(one.columns) for one in read_prompts(tmp_path / "prompts.parquet")}
    held_out = {json.dumps(one.columns) for one in read_prompts(tmp_path / "eval.parquet")}
    assert len(held_out) == found.eval_prompts == 3 and not trained & held_out


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": "a"}, {"id": "a"}], 'tasks.jsonl:2: id "a" was already given at tasks.jsonl:1'),
        ([{"id": 1.5}], 'tasks.jsonl:1: column "id": an id must be text or an integer'),
        ([{"x": float("nan")}], "tasks.jsonl:1: a task must be JSON, and this row is not"),
        ([], "there are no rows"),
    ],
)
def test_a_bad_row_is_refused_by_its_line(tmp_path: Path, rows: list[object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        prepared(tmp_path, rows)
