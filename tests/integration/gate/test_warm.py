"""Processes that tests fork from one that has the libraries: they are as those that were executed."""

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from headrace.supervisor.fork_server.client import can_fork
from tests.waiting import until
from tests.warm.forked import Forked
from tests.warm.start import COLD, Process, python, start

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not can_fork(), reason="there is no fork server on this system")


@pytest.fixture(autouse=True)
def _forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all other tests execute their processes."""
    monkeypatch.delenv(COLD, raising=False)


def begun(tmp_path: Path, module: str, *arguments: str, cold: bool = False, **variables: str) -> tuple[Process, Path]:
    """A process of the module, and the file that it writes to."""
    path = tmp_path / f"out-{cold}"
    with path.open("w") as file:
        env = {**os.environ, **variables}
        return start(python(module, *arguments), out=file, err=file, env=env, cold=cold), path


def test_the_command_line_says_and_ends_as_one_that_was_executed(tmp_path: Path) -> None:
    for words, status in ((["algorithms"], 0), (["check", str(tmp_path / "none")], 2)):
        said = []
        for cold in (True, False):
            process, path = begun(tmp_path, "headrace", *words, cold=cold)
            assert process.wait(120) == status, path.read_text()
            assert isinstance(process, subprocess.Popen if cold else Forked)
            said.append(path.read_text())
        assert said[0] == said[1]


def test_it_is_a_child_with_its_own_title_that_a_signal_ends(tmp_path: Path) -> None:
    process, _ = begun(tmp_path, "headrace", "watch", str(tmp_path))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    seen = psutil.Process(process.pid)
    assert seen.ppid() == os.getpid()
    until(lambda: " -m headrace watch " in " ".join(seen.cmdline()), "its title", 30)
    process.kill()
    assert process.wait(60) == process.returncode == process.poll() == -signal.SIGKILL
    process.terminate()  # Nothing is there any more.


@pytest.mark.parametrize("why", ["another variable", "another thread", "all are cold"])
def test_it_is_executed_where_a_fork_would_differ(tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Process] = []
    variables = {"MALLOC_ARENA_MAX": "7"} if why == "another variable" else {}
    if why == "all are cold":
        monkeypatch.setenv(COLD, "1")

    def begin() -> None:
        found.append(begun(tmp_path, "headrace", "algorithms", **variables)[0])

    thread = threading.Thread(target=begin)
    (thread.start if why == "another thread" else begin)()
    if why == "another thread":
        thread.join(60)
    (process,) = found
    try:
        assert isinstance(process, subprocess.Popen)
    finally:
        process.kill()
        process.wait(60)


def test_both_begin_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path, "headrace", "--help")[0].wait(120)  # What it is forked from has been started in another folder.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    seen = []
    for cold in (True, False):
        process, path = begun(tmp_path, "tests.integration.gate.shows", "--x", "1", cold=cold, HEADRACE_OWN="2")
        assert process.wait(120) == 0, path.read_text()
        assert isinstance(process, subprocess.Popen if cold else Forked)
        seen.append(json.loads(path.read_text()))
    words = ["--x", "1"]
    assert seen[0] == seen[1]
    assert seen[0] == ["__main__", words, ["-P", "-m", "tests.integration.gate.shows", *words], str(tmp_path), "2", ""]


def test_a_server_that_was_killed_costs_one_fork(tmp_path: Path) -> None:
    begun(tmp_path, "headrace", "--help")[0].wait(120)
    (server,) = [one for one in psutil.Process().children() if "pytest's fork server" in " ".join(one.cmdline())]
    server.kill()
    kinds = []
    for _ in range(2):
        process, path = begun(tmp_path, "headrace", "algorithms")
        assert process.wait(120) == 0, path.read_text()
        kinds.append(type(process))
    assert kinds == [subprocess.Popen, Forked]
