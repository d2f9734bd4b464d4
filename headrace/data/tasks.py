"""Prepares the rows of an environment: tasks, which are played in place of being completed. Nothing is tokenized."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.config.data import DataTable
from headrace.data.held_out import digest
from headrace.data.prepare import PreparedData
from headrace.data.progress import RowProgress
from headrace.data.render import fitting_tokenizer, stop_token_ids
from headrace.data.rows import DataRow
from headrace.data.sets import SetReader, repeated_ids
from headrace.services.environment.identity import environment_digest
from headrace.services.environment.settings import EnvironmentTable
from headrace.services.orchestrator.settings import EvalTable
from headrace.wire.errors import DataError
from headrace.wire.rundir import prompts
from headrace.wire.rundir.layout import RunPaths

_TEXT = 2000
"""Characters of a task that people are shown where it has no prompt of text."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task."""

    place: str
    sample_id: str
    """Given as `id`, else a digest of its content."""
    values: Mapping[str, object]
    """All columns of the row: what `reset` gets, and what scorers see."""

    tokens: int = 0
    """Its prompt comes from the environment."""

    @property
    def text(self) -> str:
        """For people: the prompt, or of its messages the user's last one, where it is a text; else the whole task."""
        prompt = self.values.get("prompt")
        messages = [one for one in prompt if isinstance(one, dict)] if isinstance(prompt, list) else []
        asked = [prompt, *(one.get("content") for one in messages if one.get("role") == "user")][-1]
        return asked if isinstance(asked, str) else json.dumps(dict(self.values))[:_TEXT]


def prepare_tasks(
    table: DataTable,
    environment: EnvironmentTable,
    model: Path,
    out: Path,
    *,
    seed: int,
    vocab_size: int,
    evals: Sequence[EvalTable] = (EvalTable(),),
) -> PreparedData:
    """Writes `prompts.parquet` and `eval.parquet` into `out`, or raises DataError or ConfigError and writes neither."""
    stops = tuple(stop_token_ids(model, fitting_tokenizer(model, vocab_size=vocab_size)))
    rows = _of_taskset(table, environment) if table.environment else None
    sets = SetReader(
        table=table,
        make=lambda row, table: [_task(row)],
        asked=lambda one: dict(one.values),
        what="task",
        seed=seed,
        problems=lambda items: repeated_ids((one.place, one.values.get("id")) for one in items),
        progress=RowProgress(),
        evals=evals,
    ).read(rows)
    played = {"name": environment.label, "digest": environment_digest(environment)}
    prompts.write(RunPaths(out).prompts, (_row(one, played) for one in sets.train))
    prompts.write(
        RunPaths(out).eval_prompts, prompts.of_sets(sets.held_out, lambda some: [_row(one, played) for one in some])
    )
    return PreparedData(len(sets.train), len(sets.evaluated), 0, sets.duplicates, 0, stops)


def prepared_digest(run_dir: Path) -> str:
    """The environment's digest in a run directory's `prompts.parquet`; empty if its prompts are completed."""
    (first, *_) = prompts.read(RunPaths(run_dir).prompts, "environment").to_pylist() or [{}]
    found = first.get("environment")
    return "" if found is None else str(json.loads(found)["digest"])


def _of_taskset(table: DataTable, environment: EnvironmentTable) -> Iterator[DataRow | DataError]:
    # What knows the package, and starts processes, is imported where a run has one.
    from headrace.services.environment.taskset.rows import taskset_rows

    rows = asyncio.run(taskset_rows(environment, table.limit))
    return (DataRow(f"{table.environment}: task {number}", values) for number, values in enumerate(rows))


def _task(row: DataRow) -> TaskRow:
    try:
        json.dumps(row.values, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{row.place}: a task must be JSON, and this row is not: {error}") from None
    given = row.values.get("id")
    if given is not None and not isinstance(given, str | int):
        raise DataError(f'{row.place}: column "id": an id must be text or an integer')
    return TaskRow(row.place, digest(row.values) if given is None else str(given), row.values)


def _row(one: TaskRow, played: Mapping[str, str]) -> dict[str, object]:
    return {
        "sample_id": one.sample_id,
        "token_ids": [],
        "text": one.text,
        "messages": None,
        "columns": json.dumps(dict(one.values)),
        "environment": json.dumps({**played, "task": dict(one.values)}),
    }
