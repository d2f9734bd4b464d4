"""A scorer that is down holds the stream; one bad group does not."""

import pytest

from headrace.services.reward.rubric.circuit import (
    REFUSED_ROW,
    TRIES,
    Circuit,
    CircuitOpenError,
    Failure,
    ScorerOutageError,
    State,
)


def circuit(outage_s: float = 60.0) -> Circuit:
    return Circuit("judge", failures_in_row=3, outage_s=outage_s)


def fail(one: Circuit, group: str, now: float = 0.0, why: Failure = Failure.FAILED) -> bool | str:
    """Whether the group is given up, or the name of what is raised."""
    one.admit(now)
    try:
        return one.fail(group, "status 500", now, why)
    except (CircuitOpenError, ScorerOutageError) as error:
        return type(error).__name__


def test_a_group_that_fails_alone_is_given_up_after_its_tries_and_the_circuit_stays_closed() -> None:
    one = circuit()
    said = [fail(one, "g1") for _ in range(TRIES)]
    assert said == ["CircuitOpenError"] * (TRIES - 1) + [True]
    assert one.state is State.CLOSED and one.room(0.0) is None


def test_consecutive_failures_of_different_groups_open_the_circuit_and_drop_no_group() -> None:
    one = circuit()
    assert [fail(one, name) for name in ("g1", "g2", "g3")] == ["CircuitOpenError"] * 3
    assert one.state is State.OPEN and one.room(0.5) == 0
    with pytest.raises(CircuitOpenError, match="judge is down: status 500"):
        one.admit(0.5)


def test_a_success_between_failures_keeps_the_circuit_closed() -> None:
    one = circuit()
    for name in ("g1", "g2"):
        fail(one, name)
    one.admit(0.0)
    one.succeed("g9")
    assert fail(one, "g3") == "CircuitOpenError" and one.state is State.CLOSED


def test_a_scorer_that_reports_itself_down_opens_the_circuit_at_once() -> None:
    one = circuit()
    assert fail(one, "g1", 0.0, Failure.DOWN) == "CircuitOpenError"
    assert one.state is State.OPEN


def test_an_open_circuit_lets_probes_through_and_a_success_closes_it() -> None:
    one = circuit()
    fail(one, "g1", 0.0, Failure.DOWN)
    assert one.room(1.1) == 4
    one.admit(1.1)
    one.admit(1.1)
    assert one.room(1.1) == 2 and one.state is State.PROBING
    one.succeed("g1")
    assert one.state is State.CLOSED and one.reason == ""


def test_failed_probes_back_off() -> None:
    one = circuit(outage_s=1000)
    fail(one, "g1", 0.0, Failure.DOWN)
    now, waits = 0.0, []
    for _ in range(7):
        begin = now
        while one.room(now) == 0:
            now += 0.5
        waits.append(now - begin)
        assert fail(one, "g1", now) == "CircuitOpenError"
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_an_outage_ends_the_run_after_its_deadline_with_the_reason() -> None:
    one = circuit(outage_s=10)
    fail(one, "g1", 0.0, Failure.DOWN)
    said = []
    now = 0.0
    while now < 30 and (not said or said[-1] != "ScorerOutageError"):
        now += 0.5
        if one.room(now):
            said.append(fail(one, "g1", now))
    assert said[-1] == "ScorerOutageError" and 10 <= now <= 14
    one.state = State.PROBING
    with pytest.raises(ScorerOutageError, match=r"judge has been down for .* status 500"):
        one.fail("g1", "status 500", now, Failure.DOWN)


def test_rejected_values_drop_a_group_at_once_and_a_long_streak_opens_the_circuit() -> None:
    one = circuit()
    said = [fail(one, f"g{number}", 0.0, Failure.REFUSED) for number in range(3 * REFUSED_ROW)]
    assert said[:-1] == [True] * (3 * REFUSED_ROW - 1)
    assert said[-1] == "CircuitOpenError" and one.state is State.OPEN


def test_a_group_that_keeps_failing_while_others_are_scored_is_dropped() -> None:
    one, now, said = circuit(), 0.0, []
    for _ in range(10):
        now += 1.5
        said.append(fail(one, "poison", now, Failure.DOWN))
        if said[-1] is True:
            break
        now += 1.5
        one.admit(now)
        one.succeed("good")
    assert said == ["CircuitOpenError"] * (TRIES - 1) + [True]
    assert one.state is State.CLOSED


def test_a_group_is_never_dropped_while_nothing_else_is_scored() -> None:
    one, now, said = circuit(outage_s=1000), 0.0, set()
    for _ in range(20):
        while one.room(now) == 0:
            now += 1
        said.add(fail(one, "g1", now, Failure.DOWN))
    assert said == {"CircuitOpenError"}
