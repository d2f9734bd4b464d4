"""Where an error of the user's code is, and when the code is broken rather than one of its inputs."""

from pathlib import Path

import pytest

from headrace.wire.process.users_code import FIRST_GROUPS, Bug, FirstFailures, bug_of

HERE = Path(__file__).parent / "none"


def raised(error: type[Exception]) -> Exception:
    try:
        raise error("why")
    except Exception as found:
        return found


def test_the_first_groups_that_fail_alike_show_broken_code() -> None:
    first = FirstFailures()
    told = [first.failed(f"g{number}", "same") for number in range(FIRST_GROUPS)]
    assert told == [False] * (FIRST_GROUPS - 1) + [True]


@pytest.mark.parametrize(
    "failures",
    [
        [("a", "same"), ("a", "same"), ("a", "same"), ("b", "same")],  # One group that is tried again is one group.
        [("a", "same"), ("b", "other"), ("c", "same")],
    ],
)
def test_a_retried_group_or_a_different_error_does_not_count_as_broken_code(failures: list[tuple[str, str]]) -> None:
    first = FirstFailures()
    assert not any(first.failed(*one) for one in failures)


def test_once_something_has_worked_no_failure_is_one_of_the_code_alone() -> None:
    first = FirstFailures()
    first.worked()
    assert not any(first.failed(f"g{number}", "same") for number in range(9))


def test_an_error_of_the_code_has_its_place_and_its_whole_traceback() -> None:
    bug = bug_of(raised(ZeroDivisionError), HERE)
    assert bug is not None and bug.kind == "ZeroDivisionError"
    assert bug.place.startswith(f"{__file__}:") and "Traceback" in bug.trace and 'raise error("why")' in bug.trace
    assert bug == Bug("ZeroDivisionError", bug.place)


class OfAPackageError(Exception):
    """As HTTP clients have their own."""


@pytest.mark.parametrize("kind", [ConnectionError, TimeoutError, MemoryError, OfAPackageError])
def test_a_transient_error_is_not_a_bug(kind: type[Exception]) -> None:
    assert bug_of(raised(kind), HERE) is None
