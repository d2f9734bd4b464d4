"""Tests of an extra are skipped where it is not installed."""

import importlib.util

import pytest


def needs(package: str, *, extra: str) -> pytest.MarkDecorator:
    """A mark for tests that need `package`. It is not imported: every worker of pytest imports each file to collect it,
    and some packages take seconds."""
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(absent, reason=f"the extra `{extra}` is not installed")
