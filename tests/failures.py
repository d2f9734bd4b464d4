"""Writes down which tests fail, for `tests/repeat.py`: one line of JSON a session's begin and end, one a failure.

Only where HEADRACE_FAILED names a file, which continuous integration does: `make test` repeats nothing.
"""

import json
import os
import resource
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "HEADRACE_FAILED"


def install(config: pytest.Config) -> None:
    """Watches in each process that runs tests; writes in the one that hears of all of them."""
    file = os.environ.get(VARIABLE)
    if not file:
        return
    config.pluginmanager.register(Watch())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(file)))


class Watch:
    """Adds to each report whether the test's file had started a process by then."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._before: object = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.path != self._file:
            self._file, self._before = item.path, _children()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        report.starts_processes = _children() != self._before
        return report


class Recorder:
    """Appends to the file; a session without an end has crashed."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_sessionstart(self) -> None:
        self._write({"begin": os.getpid()})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
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
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write({"end": int(exitstatus)})

    def _write(self, line: dict[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps(line) + "\n")


def _children() -> tuple[int, frozenset[str]]:
    """Changes with each child that is started, and with each that has ended."""
    alive: set[str] = set()
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # The thread has ended.
                alive.update((task / "children").read_text().split())
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt, frozenset(alive)
