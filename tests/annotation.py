"""Run directories with rollouts that people can judge, as the trainer leaves them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def row(step: int, group: int, index: int, completion: str, **others: Any) -> dict[str, Any]:
    return {
        "step": step,
        "group_id": f"g{step}-{group}",
        "rollout_index": index,
        "sample_id": f"s{group}",
        "prompt": f"prompt {group}",
        "completion": completion,
        "finish_reason": "stop",
        "reward": None,
        **others,
    }


def write_step(run_dir: Path, step: int, groups: Sequence[Sequence[str]], **others: Any) -> None:
    """A step file with these completions."""
    rows = [
        row(step, group, index, text, **others)
        for group, texts in enumerate(groups)
        for index, text in enumerate(texts)
    ]
    (run_dir / "rollouts").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), run_dir / "rollouts" / f"step-{step:06d}.parquet")


def write_prompts(run_dir: Path, messages: dict[str, list[dict[str, str]] | None]) -> None:
    """What `headrace train` prepared, as far as the page looks at it."""
    rows = [{"sample_id": key, "messages": value and json.dumps(value)} for key, value in messages.items()]
    pq.write_table(pa.Table.from_pylist(rows), run_dir / "prompts.parquet")


def write_run(run_dir: Path, *, steps: int = 2, groups: int = 3) -> Path:
    """A run with two completions of each prompt."""
    for step in range(1, steps + 1):
        write_step(
            run_dir, step, [[f"answer {step}.{group} one", f"answer {step}.{group} two"] for group in range(groups)]
        )
    return run_dir
