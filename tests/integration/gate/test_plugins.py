"""What the gate adds to pytest: parts that are disjoint and complete, seconds of files, progress, what was left out."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gate.parts import PARTS, files_of_part
from tests.gate.seconds import LIMIT, TABLE
from tests.gate.until import VARIABLE as UNTIL

ROOT = Path(__file__).parents[3]
TWO_WORKERS = ("-n", "2", "--dist", "loadfile")
CONFTEST = """
from tests.gate import parts, plugin

def pytest_addoption(parser):
    parts.add_option(parser)

def pytest_configure(config):
    config.addinivalue_line("markers", "long: ")
    config.addinivalue_line("markers", "sglang: ")
    plugin.install(config)
"""
SUITE = """
import pytest

def test_short():
    pass

@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_long(number):
    pass
"""

BEGINS_IN_TIME = """
import pytest

@pytest.fixture(scope="module")
def dear():
    raise RuntimeError("made for a test that does not run")

def test_waits(dear):
    pass

def test_later():
    assert 0 == 1
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(SUITE)
    (tmp_path / "test_engine.py").write_text(SUITE.replace("mark.long", "mark.sglang"))
    return tmp_path


def run(suite: Path, *options: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **variables,
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", *options, str(suite)]
    return subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_parts_are_the_long_tests_each_once(suite: Path) -> None:
    ran = []
    for part in range(1, PARTS + 1):
        table = suite / f"table-{part}"
        done = run(suite, *TWO_WORKERS, "--part", str(part), **{TABLE: str(table)})
        assert done.returncode == 0, done.stdout
        ran += [json.loads(line)[0] for line in table.read_text().splitlines()]
    assert sorted(ran) == [f"test_{name}.py::test_long[{number}]" for name in "abcd" for number in (1, 2)]


def test_a_part_without_a_test_that_runs_alone_is_no_failure(suite: Path, tmp_path: Path) -> None:
    failed = tmp_path / "failed.jsonl"
    done = run(suite, "--part", "1", "-m", "alone", HEADRACE_FAILED=str(failed))
    assert done.returncode == 0, done.stdout
    done = run(suite, "-m", "alone", HEADRACE_FAILED=str(failed))
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert [line["end"] for line in map(json.loads, failed.read_text().splitlines()) if "end" in line] == [0, 5]


def test_any_number_of_files_is_divided_without_a_rest() -> None:
    for count in range(8):
        files = [f"test_{number}" for number in range(count)]
        parts = [files_of_part(files, part) for part in range(1, PARTS + 1)]
        assert sorted(name for part in parts for name in part) == files
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("workers", [(), TWO_WORKERS], ids=["one process", "two workers"])
def test_a_run_names_what_is_under_way_what_it_left_out_and_files_over_the_limit(
    suite: Path, workers: tuple[str, ...]
) -> None:
    (suite / "conftest.py").write_text(f"from tests.gate import progress\nprogress.EVERY_S = 0.2\n{CONFTEST}")
    (suite / "test_waits.py").write_text("import time\n\ndef test_waits():\n    time.sleep(1.5)\n")
    done = run(suite, *workers, "-m", "not long and not sglang", **{LIMIT: "1"})
    assert done.returncode == 1
    assert re.findall(r"TOO DEAR: (\S+) takes more than 1 s", done.stdout) == ["test_waits.py"]
    line = r"\[\d+ min\] \d of 6 tests, 0 failed; under way: .*test_waits.py::test_waits \(\d s\)"
    assert re.search(line, done.stdout), done.stdout
    assert "left out: 8 tests marked long (make test-all)" in done.stdout
    assert "left out: 2 tests marked sglang (make sglang)" in done.stdout


def test_a_run_of_everything_leaves_nothing_out_and_has_no_limit(suite: Path) -> None:
    done = run(suite)
    assert done.returncode == 0, done.stdout
    assert "left out" not in done.stdout and "TOO DEAR" not in done.stdout


@pytest.mark.parametrize(("most", "status"), [(100, 0), (1.1, 1)])
def test_a_file_may_take_its_share_of_a_slow_session(suite: Path, most: float, status: int) -> None:
    given = f"seconds.SHARE, seconds.MOST = 0.9, {most}"
    (suite / "conftest.py").write_text(f"from tests.gate import seconds\n{given}\n{CONFTEST}")
    (suite / "test_waits.py").write_text("import time\n\ndef test_waits():\n    time.sleep(1.5)\n")
    (suite / "test_then.py").write_text("import time\n\ndef test_waits():\n    time.sleep(0.5)\n")
    done = run(suite, "-m", "not long and not sglang", **{LIMIT: "1"})
    assert done.returncode == status and ("TOO DEAR" in done.stdout) == bool(status), done.stdout


@pytest.mark.parametrize("workers", [(), TWO_WORKERS], ids=["one process", "two workers"])
def test_no_test_begins_after_the_time_and_those_left_out_are_listed(suite: Path, workers: tuple[str, ...]) -> None:
    (suite / "test_waits.py").write_text(BEGINS_IN_TIME)
    done = run(suite, *workers, "-k", "waits or later", **{UNTIL: str(time.time() + 3600)})
    assert done.returncode == 1 and "LEFT OUT" not in done.stdout, done.stdout
    done = run(suite, *workers, "-k", "waits or later", **{UNTIL: str(time.time() - 1)})
    assert done.returncode == 0, done.stdout
    assert "LEFT OUT for want of time: 2 tests of 1 files" in done.stdout
    assert re.search(r"^ +2  test_waits.py$", done.stdout, re.MULTILINE), done.stdout
