"""Why a service ended, from its log."""

import json

import pytest

from headrace.run.child import last_words

WARNED = json.dumps({"event": "rollouts_passed_over", "error": "step-000003.parquet is damaged"})
CRASHED = json.dumps({"event": "crashed", "exception": "Traceback ...\nMemoryError: out of memory"})
REFUSED = json.dumps({"event": "refused", "error": "[run] id: a name"})


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([WARNED, CRASHED], "MemoryError: out of memory"),
        ([WARNED, "Traceback (most recent call last):", "MemoryError: out of memory"], "MemoryError: out of memory"),
        ([WARNED, REFUSED, "a library says goodbye"], "[run] id: a name"),
        (["no module of that name"], "no module of that name"),
        ([], "it printed nothing"),
    ],
)
def test_the_last_error_of_a_log_is_the_reason(lines: list[str], words: str) -> None:
    assert last_words("\n".join(lines)) == words
