"""Seconds of each file (setup, call and teardown of its tests), the dearest at the end; too dear a file is a failure.

HEADRACE_FILE_SECONDS is the most that one file may take, for continuous integration: a worker takes whole files, and
the others wait for a long one. On a slow machine the whole session takes longer, and a file may take its share of it.
What else runs makes a file slow too: where failures are repeated, such a file is measured once more, by itself.
HEADRACE_SECONDS names a file that gets the seconds of each test, a line of JSON each.
"""

import json
import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.gate import failures

LIMIT, TABLE = "HEADRACE_FILE_SECONDS", "HEADRACE_SECONDS"
SHARE = 1 / 12
"""Part of a session's seconds that one file may take: 60 s of twelve minutes."""
MOST = 2.5
"""Times the limit that the share may be: a machine is slower than that by no accident."""
_SHOWN = 10


class Seconds:
    """Sums in the process that hears of all tests."""

    def __init__(self) -> None:
        self._files: defaultdict[str, float] = defaultdict(float)
        self._tests: defaultdict[str, float] = defaultdict(float)
        self._begin = time.monotonic()
        self._least_limit = float(os.environ.get(LIMIT) or "inf")
        self._limit = self._least_limit

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._files[report.nodeid.partition("::")[0]] += report.duration
        self._tests[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        share = SHARE * (time.monotonic() - self._begin)
        self._limit = max(self._least_limit, min(share, MOST * self._least_limit))
        too_dear = self._too_dear()
        for name, seconds in too_dear.items():
            tests = [test for test in self._tests if test.partition("::")[0] == name]
            failures.write_too_dear(name, tests, seconds, self._limit)
        if too_dear and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if table := os.environ.get(TABLE):
            with Path(table).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in self._tests.items())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds of the dearest files")
        for name, seconds in sorted(self._files.items(), key=lambda one: -one[1])[:_SHOWN]:
            terminalreporter.write_line(f"{seconds:7.1f}  {name}")
        for name in self._too_dear():
            terminalreporter.write_line(
                f"TOO DEAR: {name} takes more than {self._limit:.3g} s: make it cheaper, divide it"
            )

    def _too_dear(self) -> dict[str, float]:
        """File -> its seconds."""
        return {name: seconds for name, seconds in self._files.items() if seconds > self._limit}
