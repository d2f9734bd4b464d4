"""A run directory that a local run makes is its owner's alone; one that was there keeps its mode. In a deployment the
group of the runs reads it, and services that run code of others write to their event logs alone."""

import os
from pathlib import Path

from headrace.config.run_dir import absent_folders, let_group_read, make_event_folders, make_private, take_away
from headrace.wire.rundir.layout import RunPaths


def test_a_new_run_folder_is_private_and_its_parents_have_the_usual_mode(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    absent = absent_folders(folder)
    make_private(absent)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o700 == 0o700 and folder.parent.stat().st_mode & 0o055
    take_away(absent)
    assert not folder.parent.exists()


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    make_private(absent_folders(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_in_a_deployment_only_the_group_can_also_read_the_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    make_private(absent_folders(folder))
    let_group_read(folder)
    found = folder.stat()
    assert (found.st_mode & 0o777, found.st_gid) == (0o750, os.getegid())
    folder.chmod(0o755)
    let_group_read(folder)
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_folder_of_event_logs_is_given_to_the_group_of_its_service(tmp_path: Path) -> None:
    group = os.getgroups()[-1] if os.getgroups() else os.getegid()
    make_event_folders(tmp_path, ("reward", "environment"), {"reward": group})
    run = RunPaths(tmp_path)
    found = run.own_events("reward").stat()
    assert (found.st_mode & 0o777, found.st_gid) == (0o775, group)
    assert run.own_events("environment").stat().st_mode & 0o022 == 0
    make_event_folders(tmp_path, ("reward",), {"reward": group})
