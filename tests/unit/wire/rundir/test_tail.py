"""A file that grows is read once, by whole lines; one that was replaced is read anew."""

from pathlib import Path

import pytest

from headrace.wire.rundir.tail import Added, Tail


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines"


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_tail_returns_only_new_lines_and_waits_for_the_end_of_a_torn_one(path: Path) -> None:
    it = Tail(path)
    assert it.read() == Added()
    add(path, "one\ntwo\nthr")
    assert it.read() == Added(b"one\ntwo\n")
    assert it.read() == Added()
    add(path, "ee\n")
    assert it.read() == Added(b"three\n")


def test_a_truncated_file_is_reread(path: Path) -> None:
    it = Tail(path)
    add(path, "one\ntwo\n")
    it.read()
    path.write_text("one\n")
    assert it.read() == Added(b"one\n", anew=True)


def test_a_replaced_file_is_reread(path: Path) -> None:
    it = Tail(path)
    add(path, "one\ntwo\n")
    it.read()
    other = path.with_name("other")
    other.write_text("one\ntwo\nthree\n")
    other.rename(path)
    assert it.read() == Added(b"one\ntwo\nthree\n", anew=True)


def test_a_file_rewritten_in_place_is_reread(path: Path) -> None:
    it = Tail(path)
    add(path, "one\ntwo\n")
    it.read()
    with path.open("r+") as file:
        file.write("1ne\n2wo\n3\n")
    assert it.read() == Added(b"1ne\n2wo\n3\n", anew=True)
