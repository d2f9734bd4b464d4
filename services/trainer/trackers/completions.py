"""The rollouts of a step that trackers are shown: the best, the worst, then others at random."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.wire.errors import DataError
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.layout import rollout_file

COLUMNS = ("step", "rollout", "reward", "prompt", "completion", "answer")
Rows = Sequence[Mapping[str, object]]
"""Rows with a value for each of `COLUMNS`."""
_READ = rollouts.columns("group_id", "rollout_index", "reward", "prompt", "completion", "columns")


def completions_of(folder: Path, step: int, count: int) -> list[dict[str, object]]:
    """At most `count` rollouts of a step's file in `folder`, the same ones each time; none if it cannot be read."""
    if not count:
        return []
    try:
        rows = rollouts.read(rollout_file(folder, step), _READ).to_pylist()
    except DataError:
        return []
    rows.sort(key=lambda row: -float("inf") if row.get("reward") is None else row["reward"], reverse=True)
    others = rows[1:-1]
    chosen = [*rows[:1], *rows[1:][-1:], *random.Random(step).sample(others, min(len(others), max(0, count - 2)))]
    return [
        {
            "step": step,
            "rollout": f"{row.get('group_id')}/{row.get('rollout_index')}",
            "reward": row.get("reward"),
            "prompt": row.get("prompt") or "",
            "completion": row.get("completion") or "",
            "answer": rollouts.answer_text(rollouts.columns_of(row.get("columns"))),
        }
        for row in chosen[:count]
    ]
