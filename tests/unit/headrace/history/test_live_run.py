"""A run that goes on while it is read is in order, and what is wrong with it is found all the same."""

from pathlib import Path

import pytest

from headrace.inspect.history import check, record
from tests.unit.headrace.history.test_check import Forge


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forge:
    """Takes a step whenever its journal has been read and its events have not."""
    forge, steps, read = Forge(tmp_path).run(), 3, record._read_journal

    def read_and_go_on(history: record.RunHistory) -> None:
        nonlocal steps
        read(history)
        steps += 1
        forge.issue(2 * steps - 2, 2 * steps - 1)
        forge.commit(steps - 1)
        forge.step(steps, 2 * steps - 2, 2 * steps - 1)

    monkeypatch.setattr(record, "_read_journal", read_and_go_on)
    return forge


def test_it_is_in_order(live: Forge) -> None:
    verdict = live.check()
    assert verdict.ok and verdict.problems == ()
    (note,) = verdict.notes
    assert note.startswith("the run went on while it was read, in 2 looks: ")
    assert int(note.split(": ")[1].split()[0]) >= 2, "what only one look has found is counted"


def test_every_check_of_a_live_run_reports_the_problem(live: Forge) -> None:
    live.drop(1)
    (problem,) = live.check().problems
    assert "g00000001" in problem


def test_an_ended_run_is_read_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forge, looks, read = Forge(tmp_path).run(), [], check.read_history
    forge.drop(1)

    def counted(run_dir: Path) -> object:
        looks.append(run_dir)
        return read(run_dir)

    monkeypatch.setattr(check, "read_history", counted)
    verdict = forge.check()
    assert len(verdict.problems) == 1 and verdict.notes == () and len(looks) == 1
