"""HEADRACE_UNTIL: seconds since 1970 after which no test begins; those left out are counted and listed by file.

Continuous integration has a limit of time, and on a slow machine the third of the variants would run into it: what is
cut off there lands nothing and names nothing.
"""

import os
import time
from collections import Counter

import pytest

VARIABLE = "HEADRACE_UNTIL"
_REASON = "left out for want of time"


class Until:
    """Skips in each process that runs tests; counts in the one that hears of all of them."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._files: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.time() > self._until:
            pytest.skip(_REASON)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and _REASON in report.longrepr[2]:
            self._files[report.nodeid.partition("::")[0]] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._files:
            tests = self._files.total()
            terminalreporter.section(f"LEFT OUT for want of time: {tests} tests of {len(self._files)} files")
            for name, count in sorted(self._files.items()):
                terminalreporter.write_line(f"{count:4}  {name}")


def install(config: pytest.Config) -> None:
    """Registers it where the variable is set."""
    if until := os.environ.get(VARIABLE):
        config.pluginmanager.register(Until(float(until)))
