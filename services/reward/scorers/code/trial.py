"""One program before its tests: what came out of each, and the verdict of them all. Pure."""

from typing import Protocol

from headrace.services.reward.sandbox.outcome import Program, SandboxOutcome
from headrace.services.reward.scorer import Verdict
from headrace.services.reward.scorers.code.tests import Suite


class Rules(Protocol):
    """How a program is judged; options of `code`."""

    @property
    def partial(self) -> bool:
        """The score is the share of tests passed."""
        ...

    @property
    def timeout_s(self) -> float:
        """Time of one test."""
        ...

    @property
    def total_s(self) -> float:
        """Time of all tests together."""
        ...

    @property
    def float_tolerance(self) -> float:
        """Relative or absolute."""
        ...


class Trial:
    """One program before its tests."""

    def __init__(self, program: Program, suite: Suite, options: Rules) -> None:
        self.program, self.suite, self.failure = program, suite, ""
        self.is_over = self.is_abandoned = False
        self._options = options
        self._ran = self._passed = 0
        self._spent_s = 0.0
        self._why = ""

    def see(self, outcome: SandboxOutcome) -> bool:
        """Judges the next test's outcome; returns whether another test is to be run. Called on a thread."""
        wrong = self._wrong(outcome)
        self._ran += 1
        self._passed += not wrong
        self._spent_s += outcome.spent_s
        if wrong and not self._why:
            self._why = f"test {self._ran} of {len(self.suite.tests)}: {wrong}"
        if self.is_abandoned or outcome.ending == "time":
            return False
        if self._ran < len(self.suite.tests) and self._spent_s > self._options.total_s:
            self._why = self._why or f"over its time of {self._options.total_s:g} s after {self._ran} tests"
            return False
        return self._options.partial or not wrong

    def _wrong(self, outcome: SandboxOutcome) -> str:
        """What is wrong with it; empty = nothing."""
        if outcome.ending == "time":
            return f"over its time of {self._options.timeout_s:g} s"
        if outcome.ending == "signal":
            return f"killed by signal {outcome.code}"
        if outcome.code:
            return outcome.notes.rpartition("\n")[2][:200] or f"exit status {outcome.code}"
        try:
            answer = self.suite.tests[self._ran].answer
            return "" if answer.accepts(outcome.output, self._options.float_tolerance) else "another answer"
        except (ValueError, RecursionError) as error:
            return str(error) or type(error).__name__

    @property
    def verdict(self) -> Verdict:
        """What has come out."""
        if self.failure:
            return Verdict.failure(self.failure)
        if not (self.is_over or self._why):
            return Verdict.failure("not run to its end in many times its `total_s`: the machine is too busy")
        total = len(self.suite.tests)
        share = self._passed / total
        return Verdict(
            value=share if self._options.partial else float(self._passed == total),
            reason=self._why or f"all {total} tests passed",
            parts={"passed": float(self._passed), "tests": float(total)},
        )
