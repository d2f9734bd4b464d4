"""Replacing files and folders: whole or not at all, and synced in the right order where that was asked for."""

import os
from pathlib import Path

import pytest

from headrace.wire.rundir import atomic


class Calls:
    """What was synced and renamed, in order; names as they were then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[str, str]] = []
        fsync, rename, replace = os.fsync, os.rename, os.replace

        def synced(descriptor: int) -> None:
            self.found.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
            fsync(descriptor)

        def renamed(source, target) -> None:
            self.found.append(("rename", Path(target).name))
            rename(source, target)

        def replaced(source, target) -> None:
            self.found.append(("rename", Path(target).name))
            replace(source, target)

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", renamed)
        monkeypatch.setattr(os, "replace", replaced)


@pytest.fixture
def calls(monkeypatch) -> Calls:
    return Calls(monkeypatch)


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


def test_a_durable_file_is_synced_before_its_name_and_its_folder_after(folder, calls):
    atomic.write_text(folder / "a.json", "é\n", durable=True)
    assert (folder / "a.json").read_bytes() == "é\n".encode()
    (first, aside), *rest = calls.found
    assert first == "sync" and aside.startswith(".aside-a.json.")
    assert rest == [("rename", "a.json"), ("sync", "run")]


def test_a_durable_folder_is_synced_with_all_that_is_in_it(folder, calls):
    with atomic.replaced_folder(folder / "model", durable=True) as aside:
        (aside / "adapter").mkdir()
        (aside / "adapter" / "deep").write_text("w")
        (aside / "top").write_text("w")
    kinds = [what for what, _ in calls.found]
    assert kinds == ["sync"] * 4 + ["rename", "sync"]
    assert {name for _, name in calls.found[:4]} == {"deep", "adapter", "top", ".aside-model"}
    assert calls.found[-2:] == [("rename", "model"), ("sync", "run")]


def test_a_fault_before_the_rename_leaves_the_old_file(folder, monkeypatch):
    path = folder / "a.json"
    path.write_text("old")

    def fails(descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="no space"):
        atomic.write_text(path, "new", durable=True)
    with pytest.raises(ValueError, match="half"), atomic.replaced_file(path, durable=False) as aside:
        aside.write_text("ne")
        raise ValueError("half")
    assert path.read_text() == "old" and os.listdir(folder) == ["a.json"]


def test_a_fault_before_the_rename_leaves_the_old_folder(folder):
    with atomic.replaced_folder(folder / "model", durable=True) as aside:
        (aside / "weights").write_text("old")
    with pytest.raises(ValueError, match="half"), atomic.replaced_folder(folder / "model", durable=True) as aside:
        (aside / "weights").write_text("ne")
        raise ValueError("half")
    assert (folder / "model" / "weights").read_text() == "old" and os.listdir(folder) == ["model"]


def test_a_folder_replaces_one_that_has_more_files(folder):
    for name in ("one", "two"):
        with atomic.replaced_folder(folder / "model", durable=False) as aside:
            (aside / name).write_text(name)
    assert os.listdir(folder / "model") == ["two"] and os.listdir(folder) == ["model"]


def test_two_writers_of_one_file_do_not_meet(folder):
    path = folder / "a.json"
    with atomic.replaced_file(path, durable=False) as one, atomic.replaced_file(path, durable=False) as two:
        one.write_text("one")
        two.write_text("two")
    assert path.read_text() == "one" and os.listdir(folder) == ["a.json"]
