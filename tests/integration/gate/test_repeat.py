"""Continuous integration forgives a failed test that starts processes and then passes by itself, and nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.gate.failures import VARIABLE
from tests.gate.repeat import MOST, MOST_TESTS, Failure, judge, main, read
from tests.gate.seconds import LIMIT

ROOT = Path(__file__).parents[3]
CONFTEST = """
from tests.gate import failures
from tests.gate.seconds import Seconds

def pytest_configure(config):
    failures.install(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds())
"""
SUITE = """
import os, subprocess, sys
import pytest

def test_that_starts_no_process():
    assert 1 == 2

@pytest.fixture
def broken():
    subprocess.run([sys.executable, "-c", ""], check=True)
    raise RuntimeError("the fixture")

def test_whose_fixture_breaks(broken):
    pass

def test_in_whose_file_a_process_was_started():
    assert 3 == 4, "the words of its failure"

def test_that_passes():
    subprocess.run([sys.executable, "-c", ""], check=True)
"""
SHARED = """
import subprocess, sys
import pytest

@pytest.fixture(scope="session")
def server():
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield
    child.communicate()
"""
FIRST_OF_TWO = """
def test_that_starts_a_server(server):
    pass
"""
SECOND_OF_TWO = """
def test_on_the_server_that_another_file_has_started(server):
    assert 5 == 6
"""
LEFT_TO_ITSELF = """
import os, time

def test_with_a_child_that_is_still_there():
    if os.fork() == 0:
        time.sleep(0.5)
        os._exit(0)
    raise AssertionError("while it lives")
"""


def session(folder: Path, *options: str) -> Path:
    """Runs a suite as `.ci/run` does; the file of its failures."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "with_server").mkdir()
    (folder / "with_server" / "conftest.py").write_text(SHARED)
    (folder / "with_server" / "test_1.py").write_text(FIRST_OF_TWO)
    (folder / "with_server" / "test_2.py").write_text(SECOND_OF_TWO)
    (folder / "test_some.py").write_text(SUITE)
    (folder / "test_then.py").write_text(LEFT_TO_ITSELF)
    file = folder / "failed.jsonl"
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", folder, *options, folder]
    paths = {"PYTHONPATH": str(ROOT), VARIABLE: str(file)}
    done = subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return file


@pytest.mark.parametrize("options", [(), ("-n", "2", "--dist", "loadfile")], ids=["one process", "two workers"])
def test_a_session_writes_down_what_failed_and_which_of_it_had_started_processes(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    found = {one.test.partition("::")[2]: one for one in read(session(tmp_path, *options), 1)}
    assert {name: one.starts_processes for name, one in found.items()} == {
        "test_that_starts_no_process": False,
        "test_whose_fixture_breaks": True,
        "test_in_whose_file_a_process_was_started": True,
        "test_with_a_child_that_is_still_there": True,
        "test_on_the_server_that_another_file_has_started": True,
    }
    assert "the words of its failure" in found["test_in_whose_file_a_process_was_started"].text
    assert "RuntimeError: the fixture" in found["test_whose_fixture_breaks"].text


def written(folder: Path, lines: Iterable[dict[str, object]]) -> Path:
    file = folder / "failed.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


FAILED = {"test": "tests/test_a.py::test_b", "starts_processes": True, "text": "why"}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "0 began"),
        ([{"begin": 1}, FAILED], "1 began and 0 came to their end"),
        ([{"begin": 1}, FAILED, {"end": 1}, {"begin": 2}, {"end": 0}], "2 began"),
        ([{"begin": 1}, FAILED, {"end": 3}], "not every test was run"),
        ([{"begin": 1}, FAILED, {"end": 2}], "not every test was run"),
        ([{"begin": 1}, {"end": 0}], "something else did"),
    ],
)
def test_what_is_no_failed_test_is_never_forgiven(
    lines: list[dict[str, object]], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(str(written(tmp_path, lines)), "1") == 1
    assert words in capsys.readouterr().out


def test_the_reason_of_a_lasting_failure_is_printed_at_the_very_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "    def test_b():\n>       assert 1 == 2\nE       assert 1 == 2\n\ntest_a.py:3: AssertionError"
    failed = {**FAILED, "starts_processes": False, "text": text}
    assert main(str(written(tmp_path, [{"begin": 1}, failed, {"end": 1}])), "1") == 1
    last = capsys.readouterr().out.splitlines()[-2:]
    assert last == ["  tests/test_a.py::test_b", "    E       assert 1 == 2"]


def test_no_file_is_no_reason_to_forgive(tmp_path: Path) -> None:
    assert main(str(tmp_path / "none"), "1") == 1


def failures(*started: bool) -> list[Failure]:
    return [Failure(f"test_{n}", started, f"traceback {n}") for n, started in enumerate(started)]


def test_one_that_passes_by_itself_is_told_with_its_first_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []
    assert judge(failures(True, True), lambda one: asked.append(one.test) is None) == []
    said = capsys.readouterr().out
    assert asked == ["test_0", "test_1"]
    assert "FLAKY test_0" in said and "traceback 0" in said and "traceback 1" in said


def test_one_that_fails_again_or_starts_no_process_fails(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def passes(one: Failure) -> bool:
        asked.append(one.test)
        return one.test == "test_2"

    assert judge(failures(False, True, True), passes) == ["test_0", "test_1"]
    assert asked == ["test_1", "test_2"]
    assert "FLAKY test_2" in capsys.readouterr().out


def of_one_file(count: int) -> list[Failure]:
    return [Failure(f"test_a.py::test_{n}", True, f"traceback {n}") for n in range(count)]


def test_tests_of_one_file_are_repeated_together() -> None:
    assert judge(of_one_file(MOST + 1), lambda _: True) == []


@pytest.mark.parametrize("many", [failures(*[True] * (MOST + 1)), of_one_file(MOST_TESTS + 1)], ids=["files", "tests"])
def test_many_failures_are_no_accident(many: list[Failure]) -> None:
    assert judge(many, lambda _: pytest.fail("repeated")) == [one.test for one in many]


def test_a_test_fails_once_however_many_of_its_phases_do(tmp_path: Path) -> None:
    lines = [{"begin": 1}, FAILED, {**FAILED, "text": "its teardown"}, {"end": 1}]
    (found,) = read(written(tmp_path, lines), 1)
    assert found.text == "why"


ODD = "$(false) 'a' [b] x;y"
ODDLY_NAMED = f"""
import pytest

@pytest.mark.parametrize("value", [1, 2], ids=[{ODD!r}, "other"])
def test_passes(value):
    assert value == 1

@pytest.mark.parametrize("value", [1], ids=[{ODD!r}])
def test_fails(value):
    assert value == 2

@pytest.mark.parametrize("value", [1], ids=[{ODD!r}])
def test_skips(value):
    pytest.skip("not here")
"""


@pytest.mark.parametrize(("name", "passes"), [("passes", True), ("fails", False), ("skips", False), ("is_gone", False)])
def test_a_test_of_any_name_is_run_alone_and_one_that_is_skipped_has_not_passed(
    name: str, passes: bool, tmp_path: Path
) -> None:
    suite = tmp_path / "test_odd.py"
    suite.write_text(ODDLY_NAMED)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    assert alone(Failure(f"{suite}::test_{name}[{ODD}]", True, ""), tmp_path) == passes


def alone(one: Failure, folder: Path) -> bool:
    """What `run_alone` returns, in the environment of a suite whose failures are written to a file."""
    mine = folder / "failed"
    imports = "from math import inf; from tests.gate.repeat import Failure, run_alone"
    script = f"{imports}; raise SystemExit(run_alone({one!r}))"
    environment = {"PATH": os.environ["PATH"], VARIABLE: str(mine)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert not mine.exists(), "a repeat is no failure of the suite"
    return bool(done.returncode)


SLOW = """
import time
import pytest

@pytest.mark.parametrize("seconds", [0.4, 0.6, pytest.param(60, id="too_long")])
def test_slow(seconds):
    time.sleep(seconds)
"""


@pytest.mark.parametrize(("limit_s", "passes"), [(30.0, True), (0.9, False)])
def test_those_tests_of_a_dear_file_that_ran_are_measured_by_themselves(
    limit_s: float, passes: bool, tmp_path: Path
) -> None:
    suite = tmp_path / "test_slow.py"
    suite.write_text(SLOW)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    ran = tuple(f"{suite}::test_slow[{seconds}]" for seconds in (0.4, 0.6))
    assert alone(Failure(str(suite), True, "", ran, limit_s), tmp_path) == passes


def test_a_dear_file_fails_the_session_and_is_written_down_with_the_tests_that_ran(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_slow.py").write_text(SLOW)
    file = tmp_path / "failed.jsonl"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
        "--rootdir",
        tmp_path,
        "-k",
        "not too_long",
        tmp_path,
    ]
    paths = {"PYTHONPATH": str(ROOT), VARIABLE: str(file), LIMIT: "0.9"}
    done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    (found,) = read(file, 1)
    assert found.tests == ("test_slow.py::test_slow[0.4]", "test_slow.py::test_slow[0.6]")
    assert (found.test, found.limit_s) == ("test_slow.py", 0.9) and "of 0.9 s" in found.text
