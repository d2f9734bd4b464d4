"""What a dry run asks the reward service: can the scorers be loaded, and does every row have what they need?"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.reward.app import load_rubric
from services.reward.scorers import check_columns
from services.reward.settings import RewardSettings
from wire.errors import ConfigError, DataError

_SHOWN = 5


def check(settings: RewardSettings) -> int:
    """Returns 0; raises ConfigError for a scorer, DataError for rows (the first few are named)."""
    load_rubric(settings)
    problems: list[str] = []
    for name in ("prompts.parquet", "eval.parquet"):
        for row, columns in _rows(settings.run_dir / name):
            problems += _problems(settings, name, row, columns)
            if len(problems) >= _SHOWN:
                break
    if problems:
        raise DataError("; ".join(problems[:_SHOWN]))
    return 0


def _problems(settings: RewardSettings, file: str, row: str, columns: dict[str, Any]) -> Iterator[str]:
    for table in settings.reward.scorers:
        try:
            check_columns(table.name, table.options, columns)
        except ConfigError:
            raise
        except Exception as error:  # Whatever a scorer raises for this row, it would raise in the run.
            yield f"{file}, {row}: {table.name}: {error.args[0] if error.args else error!r}"


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows that `headrace train` has just prepared, each with its sample id. Only a dry run needs pyarrow here."""
    import pyarrow.parquet as pq

    if path.exists():
        for record in pq.read_table(path, columns=["sample_id", "columns"]).to_pylist():
            yield f"sample {record['sample_id']}", json.loads(record["columns"])
