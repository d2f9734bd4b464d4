"""What a dry run asks the reward service: can the scorers be loaded, and does every row have what they need?"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

from headrace.services.reward.app import make_rubrics
from headrace.services.reward.rubric.rubrics import Rubrics
from headrace.services.reward.settings import RewardSettings
from headrace.wire.errors import DataError
from headrace.wire.rundir import prompts
from headrace.wire.rundir.layout import RunPaths

_SHOWN = 5


def check(settings: RewardSettings) -> int:
    """Returns 0; raises ConfigError for a scorer, DataError for rows (the first few are named)."""
    return asyncio.run(_check(settings))


async def _check(settings: RewardSettings) -> int:
    rubrics = make_rubrics(settings)
    try:
        await rubrics.load(only_checked=True)
        found = _problems(rubrics, settings.run_dir)
        problems = [problem for problem, _ in zip(found, range(_SHOWN), strict=False)]
    finally:
        await rubrics.close()
    if problems:
        raise DataError("; ".join(problems))
    return 0


def _problems(rubrics: Rubrics, run_dir: Path) -> Iterator[str]:
    for path in (RunPaths(run_dir).prompts, RunPaths(run_dir).eval_prompts):
        for row, columns in _rows(path):
            yield from (f"{path.name}, {row}: {problem}" for problem in rubrics.problems(columns))


def _rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Rows that `headrace train` has just prepared, each with its sample id. Only a dry run needs pyarrow here."""
    if path.exists():
        for record in prompts.read(path, "sample_id", "columns").to_pylist():
            yield f"sample {record['sample_id']}", json.loads(record["columns"])
