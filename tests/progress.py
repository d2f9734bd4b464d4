"""A line a minute, and soon after the start: how many tests have ended, and which are under way for how long.

A test that fails is named when it fails.
"""

import threading
import time

import pytest

FIRST_S, EVERY_S = 10.0, 60.0


class Progress:
    """Counts reports in the process that prints; a thread prints, so that a test that hangs is named as well."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._running: dict[str, float] = {}
        self._ended = self._failed = 0
        self._stop = threading.Event()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session
        threading.Thread(target=self._print_each_minute, name="progress", daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        if report.failed:
            self._write(f"FAILED {report.nodeid} ({report.when})")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._ended += 1

    def pytest_sessionfinish(self) -> None:
        self._stop.set()

    def line(self) -> str:
        """What is printed."""
        now = time.monotonic()
        since_begin = f"[{(now - self._begin) / 60:.0f} min]"
        if not self._running and not self._ended:
            return f"{since_begin} tests are being collected"
        under_way = ", ".join(f"{name} ({now - since:.0f} s)" for name, since in list(self._running.items()))
        counts = f"{self._ended} of {self._session.testscollected} tests, {self._failed} failed"
        return f"{since_begin} {counts}; under way: {under_way or 'none'}"

    def _print_each_minute(self) -> None:
        wait_s = FIRST_S
        while not self._stop.wait(wait_s):
            self._write(self.line())
            wait_s = EVERY_S if self._ended else FIRST_S

    def _write(self, line: str) -> None:
        reporter = self._session.config.pluginmanager.get_plugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(line)
