"""Says at the end how many tests a run has left out by their markers, and the command that runs them."""

from collections import Counter

import pytest

COMMANDS = {"gpu": "tests/gpu/run.sh on a machine with a GPU", "long": "make test-all", "sglang": "make sglang"}
"""The command that runs the tests of a marker, the first that fits."""
_KEY = "left_out"


class LeftOut:
    """Counts in each process that collects; every worker of xdist collects the same, so one of them is heard."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._counts: Counter[str] = Counter()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._counts.update(next((name for name in COMMANDS if item.get_closest_marker(name)), "") for item in items)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_KEY] = dict(self._counts)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self._counts = Counter(getattr(node, "workeroutput", {}).get(_KEY, self._counts))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, command in COMMANDS.items():
            if count := self._counts[name]:
                terminalreporter.write_line(f"left out: {count} tests marked {name} ({command})")
