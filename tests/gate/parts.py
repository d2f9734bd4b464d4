"""`--part N`: a third of the files that have tests marked `long`, and of those files these tests alone.

Thirds stand by themselves: continuous integration runs one of them for each commit, `make test-all` all three.
"""

from collections.abc import Iterable

import pytest

PARTS = 3
LONG = "long"
ALONE = "alone"


def add_option(parser: pytest.Parser) -> None:
    """Adds `--part`."""
    parser.addoption(
        "--part", type=int, choices=range(1, PARTS + 1), help=f"1 to {PARTS}: that third of the long tests"
    )


def files_of_part(files: Iterable[str], part: int) -> set[str]:
    """Every third file by name, so that neighbours, which often take alike, are spread."""
    return set(sorted(set(files))[part - 1 :: PARTS])


class Part:
    """Deselects what is not in the part, before any worker takes a file."""

    def __init__(self, part: int) -> None:
        self._part = part

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        long = [item for item in items if item.get_closest_marker(LONG)]
        mine = files_of_part((item.location[0] for item in long), self._part)
        chosen = [item for item in long if item.location[0] in mine]
        others = set(items) - set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = chosen

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # A third may have no test that must run alone.
        if session.config.option.markexpr == ALONE and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK
