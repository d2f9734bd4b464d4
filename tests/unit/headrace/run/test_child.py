"""What a child that has given up is quoted with."""

import json

import pytest

from headrace.run.child import last_words

EVENT = {"event": "stopped", "level": "error"}


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([], "it printed nothing"),
        (["Killed"], "Killed"),
        ([{"event": "refused", "error": "no such folder"}, EVENT], "no such folder"),
        ([{"event": "step"}, EVENT], "stopped"),
        (
            [{"event": "step"}, EVENT | {"exception": "Traceback (...):\n  File\nValueError: too few rows\n"}],
            "ValueError: too few rows",
        ),
        (["[1]"], "[1]"),
    ],
)
def test_the_reason_is_told_in_words(log: list[object], words: str) -> None:
    assert last_words("\n".join(line if isinstance(line, str) else json.dumps(line) for line in log)) == words
