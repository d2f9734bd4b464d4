"""A scorer in its slot of the rubric: its calls are timed, bad values refused, failures recorded in its circuit."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.services.reward import metrics
from headrace.services.reward.rubric.circuit import Circuit, CircuitOpenError, Failure, ScorerBrokenError, State
from headrace.services.reward.rubric.refusal import refusal
from headrace.services.reward.scorer import Reads, Sample, Scorer, ScorerDownError, ScorerUnfitError, Verdict
from headrace.services.reward.scorers.rules.functions import said
from headrace.wire import tracing
from headrace.wire.process.users_code import FIRST_GROUPS, FirstFailures, shown
from headrace.wire.telemetry.logs import get_logger

log = get_logger("reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Verdicts of one scorer on some samples, in their order."""

    verdicts: tuple[Verdict, ...]
    seconds: float
    """Duration of the call that scored them."""


class ScorerSlot:
    """One scorer of the rubric. Several tasks may use it at once."""

    def __init__(
        self,
        name: str,
        scorer: Scorer,
        circuit: Circuit,
        *,
        value_range: tuple[float, float] | None = None,
        reads: Reads = "sampled",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.scorer, self.circuit = name, scorer, circuit
        self.low, self.high = value_range or (scorer.low, scorer.high)
        self._reads, self._clock = reads, clock
        self._first = FirstFailures()
        self.ends_at_bugs = False
        """Whether groups without patience count too: those of a file do, those of other callers' requests do not."""
        metrics.begin_scorer(name)

    async def judge(self, samples: Sequence[Sample], *, patient: bool) -> Judged:
        """Scores samples of one group, or one sample of no group.

        With `patient`, a group that failed whole is to be retried (CircuitOpenError) until its tries are used up; else
        it abstains at once, and only ScorerDownError from the scorer opens the circuit. Raises CircuitOpenError while
        the scorer is down, ScorerOutageError when it has been down for too long, ScorerBrokenError where its own code
        fails.
        """
        group = samples[0].group or samples[0].name
        self.circuit.admit(self._clock())
        begin = self._clock()
        try:
            with tracing.span(f"score {self.name}", samples=len(samples)) as span:
                verdicts, why = await self._ask(samples)
                span.set(failed=sum(verdict.failed for verdict in verdicts))
        except BaseException:
            self.circuit.abandon()
            raise
        seconds = self._clock() - begin
        metrics.SCORER_SECONDS.labels(self.name).observe(seconds)
        asked = [verdict for verdict in verdicts if not verdict.unasked]
        if any(not verdict.failed for verdict in asked):
            self.circuit.succeed(group)
            self._first.worked()
        elif not asked:
            self.circuit.abandon()
        elif (patient or self.ends_at_bugs) and self._is_broken(group, asked):
            self.circuit.abandon()
            raise self._broken(asked[0])
        elif patient or why is Failure.DOWN:
            self._failed(group, asked[0].reason, why)
        else:  # Requests of other callers are not a measure of the scorer's health.
            self.circuit.abandon()
        for verdict in verdicts:
            metrics.VERDICTS.labels(self.name, _outcome(verdict)).inc()
        return Judged(verdicts=verdicts, seconds=seconds)

    def _is_broken(self, group: str, failed: Sequence[Verdict]) -> bool:
        """Whether the first groups have failed by one error of the scorer's own code, in all their samples."""
        bugs = {verdict.bug for verdict in failed}
        return bugs != {None} and len(bugs) == 1 and self._first.failed(group, *bugs)

    def _broken(self, verdict: Verdict) -> ScorerBrokenError:
        assert verdict.bug is not None
        return ScorerBrokenError(
            f"the scorer {self.name} raised the same error for every sample of the first {FIRST_GROUPS} groups: "
            f"{verdict.reason}\n{shown(verdict.bug.trace)}"
        )

    async def _ask(self, samples: Sequence[Sample]) -> tuple[tuple[Verdict, ...], Failure]:
        try:
            found = await self.scorer.score([one.seen(self._reads) for one in samples])
            return self._judged(samples, found)
        except ScorerDownError as error:
            return (Verdict.failure(str(error)),) * len(samples), Failure.DOWN
        except ScorerUnfitError as error:
            raise ScorerBrokenError(f"the scorer {self.name}: {error}") from error
        except Exception as error:  # A scorer may be the user's code: it may raise anything, and that is reported.
            log.warning("scorer_failed", scorer=self.name, group=samples[0].group, error=said(error))
            return (Verdict.failure(said(error)),) * len(samples), Failure.FAILED

    def _judged(self, samples: Sequence[Sample], found: Sequence[Verdict]) -> tuple[tuple[Verdict, ...], Failure]:
        if len(found) != len(samples):
            metrics.REFUSED.labels(self.name, "missing").inc(len(samples))
            words = f"{len(found)} scores came back for {len(samples)} samples"
            return (Verdict.failure(words),) * len(samples), Failure.REFUSED
        standing = tuple(self._standing(*pair) for pair in zip(found, samples, strict=True))
        refused = any(now is not said for now, said in zip(standing, found, strict=True))
        return standing, Failure.REFUSED if refused else Failure.FAILED

    def _standing(self, verdict: Verdict, sample: Sample) -> Verdict:
        """The verdict, unless it is one that a scorer may not give."""
        found = refusal(verdict, sample, low=self.low, high=self.high)
        if found is None:
            return verdict
        kind, words = found
        metrics.REFUSED.labels(self.name, kind).inc()
        log.warning("score_refused", scorer=self.name, sample=sample.name, kind=kind, said=words)
        return Verdict.failure(f"refused: {words}")

    def _failed(self, group: str, reason: str, why: Failure) -> None:
        was_closed = self.circuit.state is State.CLOSED
        try:
            self.circuit.fail(group, reason, self._clock(), why)
        except CircuitOpenError as error:
            if was_closed and self.circuit.state is State.OPEN:
                log.warning("scorer_down", scorer=self.name, reason=reason, next_try_s=error.retry_s)
            raise


def _outcome(verdict: Verdict) -> str:
    if verdict.failed:
        return "failed"
    return "abstained" if verdict.value is None else "scored"
