"""The copy of `algorithm.path`: made whole, compared at a resume, replaced only when that was asked for."""

from types import SimpleNamespace

import pytest

from headrace.run.own_code import staged_code
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import read_events
from headrace.wire.rundir.own_code import algorithm_code, read_files
from headrace.wire.rundir.own_code import checked_digest as checked


@pytest.fixture
def run(tmp_path):
    """A user's folder and a run directory."""
    source, run_dir = tmp_path / "code", tmp_path / "run"
    (source / "package").mkdir(parents=True)
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "mine.pyc").write_bytes(b"x")
    (source / "mine.py").write_text("one = 1\n")
    (source / "package" / "table.json").write_text("{}")
    (run_dir / "config").mkdir(parents=True)
    return source, run_dir


def start(run, *, resume=False, accept=False, source=True):
    """Stages and publishes as a start does; returns whether there was something to publish."""
    path = run[0] if source else None
    resolved = SimpleNamespace(
        config=SimpleNamespace(algorithm=SimpleNamespace(path=path)), place=lambda *_: "run.toml:3: [algorithm] path"
    )
    with staged_code(resolved, run[1], resume=resume, accept_changed=accept) as code:
        if code is not None:
            code.publish()
        return code is not None


def checked_digest(run_dir):
    return checked(algorithm_code(run_dir))


def copied(run_dir):
    return sorted(path.relative_to(run_dir / "algorithm").as_posix() for path in (run_dir / "algorithm").rglob("*.*"))


def test_a_start_copies_the_folder_whole(run):
    source, run_dir = run
    assert start(run)
    assert copied(run_dir) == ["mine.py", "package/table.json"]
    assert checked_digest(run_dir) == read_files(source).digest
    assert [path.name for path in run_dir.iterdir() if path.name.startswith(".aside")] == []


def test_a_resume_with_the_same_folder_changes_nothing(run):
    start(run)
    assert not start(run, resume=True)
    assert list(read_events(run[1])) == []


def test_an_edit_is_refused_with_both_digests_and_the_files_and_accepted_if_asked(run):
    source, run_dir = run
    start(run)
    before = read_files(source).digest
    (source / "mine.py").write_text("one = 2\n")
    (source / "new.py").write_text("")
    after = read_files(source).digest
    with pytest.raises(ConfigError) as refused:
        start(run, resume=True)
    said = str(refused.value)
    assert said.startswith("run.toml:3: [algorithm] path: ") and "--accept-changed-code" in said
    assert before[:12] in said and after[:12] in said and "changed: mine.py, new.py" in said
    assert checked_digest(run_dir) == before
    assert start(run, resume=True, accept=True)
    assert checked_digest(run_dir) == after and (run_dir / "algorithm" / "mine.py").read_text() == "one = 2\n"
    (event,) = read_events(run_dir)
    assert (event["event"], event["before"], event["after"]) == ("code_changed", before, after)
    assert event["files"] == ["mine.py", "new.py"]
    assert not start(run, resume=True)


def test_a_copy_that_was_edited_by_hand_is_refused(run):
    start(run)
    (run[1] / "algorithm" / "mine.py").write_text("one = 3\n")
    with pytest.raises(ConfigError, match=r"changed: mine.py.*--accept-changed-code"):
        checked_digest(run[1])
    with pytest.raises(ConfigError, match=r"mine\.py"):
        start(run, resume=True)
    assert start(run, resume=True, accept=True)
    assert checked_digest(run[1]) == read_files(run[0]).digest


def test_a_resume_without_the_folder_goes_on_with_the_copy(run):
    source, run_dir = run
    start(run)
    expected = checked_digest(run_dir)
    source.rename(source.with_name("elsewhere"))
    assert not start(run, resume=True)
    assert checked_digest(run_dir) == expected


def test_a_failure_before_publication_leaves_the_copy_unchanged(run):
    source, run_dir = run
    start(run)
    expected = checked_digest(run_dir)
    (source / "mine.py").write_text("one = 2\n")
    resolved = SimpleNamespace(
        config=SimpleNamespace(algorithm=SimpleNamespace(path=source)), place=lambda *_: "[algorithm] path"
    )
    with (
        pytest.raises(ConfigError, match="the function"),
        staged_code(resolved, run_dir, resume=True, accept_changed=True) as code,
    ):
        assert code is not None and code.aside.is_dir()
        raise ConfigError("the function is refused")
    assert checked_digest(run_dir) == expected and not (run_dir / ".aside-algorithm").exists()


def test_a_linked_folder_is_copied_and_counted_as_its_files(run, tmp_path):
    source, run_dir = run
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "more.py").write_text("")
    (source / "lib").symlink_to(tmp_path / "lib")
    start(run)
    assert "lib/more.py" in copied(run_dir) and checked_digest(run_dir) == read_files(source).digest
    assert not start(run, resume=True)
