"""A run directory that a local run makes is its owner's alone; one that was there keeps its mode."""

from pathlib import Path

from headrace.config.run_dir import absent_folders, make_private, take_away


def test_a_new_one_can_be_read_by_its_owner_only_and_its_parents_as_usual(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    absent = absent_folders(folder)
    make_private(absent)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o700 == 0o700 and folder.parent.stat().st_mode & 0o055
    take_away(absent)
    assert not folder.parent.exists()


def test_one_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    make_private(absent_folders(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == 0o750
