"""What is made once for all workers: by the first that asks, anew after one that failed over it; none may change it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.shared import made_once


def test_the_second_that_asks_waits_for_what_the_first_makes(tmp_path_factory: pytest.TempPathFactory) -> None:
    begun, finish, made = threading.Event(), threading.Event(), []

    def make(folder: Path) -> None:
        made.append(folder)
        folder.mkdir()
        begun.set()
        assert finish.wait(60)
        (folder / "result").write_text("whole")

    with ThreadPoolExecutor(2) as workers:
        first = workers.submit(made_once, tmp_path_factory, "waited-for", make)
        assert begun.wait(60)
        second = workers.submit(made_once, tmp_path_factory, "waited-for", make)
        assert not second.done()
        finish.set()
        assert first.result(60) == second.result(60)
    assert (made[0] / "result").read_text() == "whole" and len(made) == 1


def test_what_was_left_half_made_is_made_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fails(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").touch()
        raise RuntimeError("over it")

    with pytest.raises(RuntimeError, match="over it"):
        made_once(tmp_path_factory, "half-made", fails)
    again = made_once(tmp_path_factory, "half-made", Path.mkdir)
    assert not (again / "half").exists()


def test_what_a_test_changes_the_next_that_asks_refuses(tmp_path_factory: pytest.TempPathFactory) -> None:
    def make(folder: Path) -> None:
        (folder / "run").mkdir(parents=True)
        (folder / "run" / "events").write_text("one")
        (folder / "run" / "left-alone").write_text("one")

    folder = made_once(tmp_path_factory, "changed", make)
    assert made_once(tmp_path_factory, "changed", make) == folder
    (folder / "run" / "events").write_text("two")
    (folder / "added").touch()
    with pytest.raises(AssertionError, match=r"changed since it was made: \['added', 'run/events'\]"):
        made_once(tmp_path_factory, "changed", make)
