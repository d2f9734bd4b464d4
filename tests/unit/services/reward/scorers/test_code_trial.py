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


def test_cpu_wait_is_not_charged_to_a_program():
    seen = trial(total_s=10.0)
    assert [seen.see(outcome(b"1", wall_s=9.0, waited_s=8.0)) for _ in range(4)] == [True] * 4
    seen.is_over = True
    assert seen.verdict.value == 1.0


def test_sleep_is_charged_to_a_program():
    seen = trial(total_s=10.0)
    assert [seen.see(outcome(b"1", wall_s=6.0)) for _ in range(2)] == [True, False]
    seen.is_over = True
    assert (seen.verdict.value, seen.verdict.failed) == (0.0, False)


@pytest.mark.parametrize(("partial", "value"), [(False, 0.0), (True, 0.25)])
def test_an_interrupted_trial_is_judged_by_its_results_once_a_test_failed(partial, value):
    seen = trial(partial=partial)
    seen.see(outcome(b"1"))
    assert seen.verdict.failed
    seen.see(outcome(b"2"))
    assert (seen.verdict.value, seen.verdict.failed) == (value, False)
