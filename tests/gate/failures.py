"""Writes down which tests fail, and which files are too dear, for `tests/gate/repeat.py`: one line of JSON a session's
begin and end, one a failure.

Only where HEADRACE_FAILED names a file, which continuous integration does: `make test` repeats nothing.
"""

import json
import os
import resource
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "HEADRACE_FAILED"
_HELPERS = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")


def install(config: pytest.Config) -> None:
    """Watches in each process that runs tests; writes in the one that hears of all of them."""
    file = os.environ.get(VARIABLE)
    if not file:
        return
    config.pluginmanager.register(Watch())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(file)))


class Watch:
    """Adds to each report whether the test may have to do with processes: its file has started some by then, or there
    are some of a fixture that several files share.
    """

    def __init__(self) -> None:
        self._file: Path | None = None
        self._ended = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.path != self._file:
            self._file, self._ended = item.path, _ended()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        report.starts_processes = _ended() != self._ended or _any_alive()
        return report


class Recorder:
    """Appends to the file; a session without an end has crashed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._passed = 0

    def pytest_sessionstart(self) -> None:
        self._write({"begin": os.getpid()})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed += report.passed and report.when == "call"
        if report.failed:
            self._write(
                {
                    "test": report.nodeid,
                    "when": report.when,
                    "starts_processes": getattr(report, "starts_processes", False),
                    "text": f"{report.longreprtext}\n{report.capstderr[-4000:]}",
                }
            )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._write({"end": int(session.exitstatus), "passed": self._passed})

    def _write(self, line: dict[str, Any]) -> None:
        _append(self._file, line)


def write_too_dear(file: str, tests: Sequence[str], seconds: float, limit_s: float) -> None:
    """A line for a test file whose tests took too long together; they are repeated as one, within `limit_s` seconds."""
    if path := os.environ.get(VARIABLE):
        text = f"E   took {seconds:.1f} s of {limit_s:.3g} s: make it cheaper, divide it"
        line = {"test": file, "tests": tests, "starts_processes": True, "limit_s": limit_s, "text": text}
        _append(Path(path), line)


def _append(path: Path, line: dict[str, Any]) -> None:
    # One write: sessions that run side by side append to the same file.
    with path.open("ab", buffering=0) as file:
        file.write((json.dumps(line) + "\n").encode(errors="replace"))


def _ended() -> int:
    """Changes with each child that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _any_alive() -> bool:
    """Whether there is any child, but for the helpers that Python keeps once it has needed them."""
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # The thread, or the child, has ended.
            for child in task.read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes()  # Empty: a zombie.
                if command and not any(name in command for name in _HELPERS):
                    return True
    return False
