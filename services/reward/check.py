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
        found = _problems(rubrics, settings)
        problems = [problem for problem, _ in zip(found, range(_SHOWN), strict=False)]
    finally:
        await rubrics.close()
    if problems:
        raise DataError("; ".join(problems))
    return 0


def _problems(rubrics: Rubrics, settings: RewardSettings) -> Iterator[str]:
    files = RunPaths(settings.run_dir)
    for path, tasks in ((files.prompts, {}), (files.eval_prompts, settings.eval_tasks)):
        for row, columns, name in _rows(path):
            found = rubrics.problems(columns, tasks.get(name, ""))
            yield from (f"{path.name}, {row}: {problem}" for problem in found)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, object], str]]:
    """Rows that `headrace train` has just prepared, with sample id and evaluation set. Only a dry run needs pyarrow."""
    if path.exists():
        for record in prompts.read(path, "sample_id", "columns", "set").to_pylist():
            yield f"sample {record['sample_id']}", json.loads(record["columns"]), record.get("set") or ""
