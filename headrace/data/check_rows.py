"""Checks that the scoring models can read every prepared row, and that a discriminator can learn from it."""

import json
from collections.abc import Iterator
from pathlib import Path

from headrace.config.reward_checks import PreparedRow, rows_problem, teachers
from headrace.config.schema import RunFile
from headrace.data.check_teachers import check_teacher
from headrace.model.model_check import scoring_context
from headrace.wire.errors import DataError
from headrace.wire.rundir import prompts
from headrace.wire.rundir.layout import RunPaths


def check_rows(config: RunFile, run_dir: Path) -> None:
    """Checks the prompts in `run_dir`. Raises DataError or ConfigError with the problem and its fix."""
    wrong = rows_problem(config, _rows(run_dir), scoring_context)
    if wrong is not None:
        raise DataError(wrong)
    for component, folder in teachers(config).items():
        check_teacher(component, folder, config.model.path, RunPaths(run_dir).prompts)


def _rows(run_dir: Path) -> Iterator[PreparedRow]:
    import pyarrow.compute as pc

    for path, is_trained in ((RunPaths(run_dir).prompts, True), (RunPaths(run_dir).eval_prompts, False)):
        table = prompts.read(path, "sample_id", "columns", "token_ids", "set")
        lengths = pc.list_value_length(table["token_ids"]).to_pylist()
        sets = table["set"].to_pylist() if "set" in table.column_names else [None] * len(table)
        rows = zip(table["sample_id"].to_pylist(), table["columns"].to_pylist(), lengths, sets, strict=True)
        for sample, columns, tokens, name in rows:
            yield PreparedRow(
                name=f"{path.name}, sample {sample}",
                columns=json.loads(columns),
                tokens=tokens,
                is_trained=is_trained,
                set=name or "",
            )
