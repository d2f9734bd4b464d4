"""The table of dead letters: its ids are there to be given back, on any terminal."""

import io

import pytest
from rich.console import Console

from headrace.cli.dead import _show
from headrace.run.execute import Output

LETTER = {
    "id": "1795228647099-0",
    "group_id": "mine/g00000012",
    "attempt": 0,
    "purpose": "train",
    "reason": "rollout_failed",
    "error": "the [bold]engine said no, at length, as engines do",
    "requeued": False,
}


@pytest.mark.parametrize("terminal", [True, False])
def test_ids_are_never_cut_and_errors_are_no_markup(terminal: bool) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)
    _show({"total": 1, "rows": [LETTER]}, Output(console, json=False))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "1795228647099-0" in shown and "mine/g00000012" in shown
    assert "[bold]" in shown.replace("\n", "")
