"""What rows are for, by their columns."""

from typing import Any

import pytest

from headrace.cli.init_guess import Kind, guess
from headrace.data.rows import DataRow

ASKED = [{"role": "user", "content": "1+1="}]


@pytest.mark.parametrize(
    ("values", "kind", "preset", "columns"),
    [
        ({"prompt": "1+1=", "answer": "2"}, "math", "plain", {}),
        (
            {"id": 7, "question": "1+1=", "solution": r"\frac42"},
            "math",
            "plain",
            {"prompt": "question", "answer": "solution"},
        ),
        ({"prompt": ASKED, "reward_model": {"ground_truth": "two"}}, "reward", "verl", {}),
        ({"input": "1+1=", "label": "2"}, "math", "openrlhf", {}),
        ({"story": "once"}, "reward", "plain", {"prompt": "story"}),
        ({"id": "7", "body": "once", "target": 0}, "math", "plain", {"answer": "target"}),
        ({"messages": ASKED}, "sft", "messages", {}),
        ({"instruction": "add", "output": "2"}, "sft", "plain", {"prompt": "instruction", "completion": "output"}),
        ({"prompt": ASKED, "tools": [], "answer": "2"}, "tools", "plain", {}),
        ({"chosen": ASKED, "rejected": ASKED}, "dpo", "plain", {}),
        ({"question": "1+1=", "chosen": "2", "rejected": "3"}, "dpo", "plain", {"prompt": "question"}),
    ],
)
def test_kind_and_layout_follow_from_the_columns(
    values: dict[str, Any], kind: Kind, preset: str, columns: dict[str, str]
) -> None:
    found = guess([DataRow("rows.jsonl:1", values)])
    assert (found.kind, found.table.preset, found.table.columns) == (kind, preset, columns)
    assert guess([DataRow("rows.jsonl:1", values)], "reward").kind == "reward"
