"""Node and npm for tests: they skip aloud without, or fail where they are required."""

import shutil

import pytest

from headrace.wire.process.environment import inherited

REQUIRE = "HEADRACE_REQUIRE_NODE"


def missing(what: str) -> None:
    """Skips, or fails where Node is required."""
    if inherited().get(REQUIRE) == "1":
        pytest.fail(f"{REQUIRE}=1, but {what}")
    pytest.skip(f"{what}; {REQUIRE}=1 makes this a failure")


def need_node() -> None:
    """Node and npm are on the path."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing("there is no node and npm on the path: install Node 20.19 or newer")
