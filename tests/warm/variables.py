"""Which variables of an environment a process may have of its own although it was forked."""

from collections.abc import Mapping

_OURS = ("HEADRACE_", "PYTEST_")


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Names of the variables that differ, but for those that no library reads as it is loaded."""
    names = one.keys() | other.keys()
    return sorted(name for name in names if one.get(name) != other.get(name) and not name.startswith(_OURS))
