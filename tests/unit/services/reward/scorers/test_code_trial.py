import pytest

from headrace.services.reward.sandbox import Program, SandboxOutcome
from headrace.services.reward.scorers.code.scorer import CodeOptions
from headrace.services.reward.scorers.code.tests import read_suite
from headrace.services.reward.scorers.code.trial import Trial

SUITE = read_suite({"inputs": ["1"] * 4, "outputs": ["1"] * 4}, {})


def trial(**options):
    return Trial(Program("", None), SUITE, CodeOptions(**options))


def outcome(output, wall_s=0.01, waited_s=0.0):
    return SandboxOutcome("exit", 0, output, "", wall_s, wall_s - waited_s, waited_s)


def test_what_it_waited_for_a_cpu_is_not_charged():
    seen = trial(total_s=10.0)
    assert [seen.see(outcome(b"1", wall_s=9.0, waited_s=8.0)) for _ in range(4)] == [True] * 4
    seen.is_over = True
    assert seen.verdict.value == 1.0


def test_what_it_slept_is_charged():
    seen = trial(total_s=10.0)
    assert [seen.see(outcome(b"1", wall_s=6.0)) for _ in range(2)] == [True, False]
    seen.is_over = True
    assert (seen.verdict.value, seen.verdict.failed) == (0.0, False)


@pytest.mark.parametrize(("partial", "value"), [(False, 0.0), (True, 0.25)])
def test_one_that_was_cut_off_is_judged_by_what_it_has_once_it_has_failed_a_test(partial, value):
    seen = trial(partial=partial)
    seen.see(outcome(b"1"))
    assert seen.verdict.failed
    seen.see(outcome(b"2"))
    assert (seen.verdict.value, seen.verdict.failed) == (value, False)
