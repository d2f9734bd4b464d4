"""Pure functions of one sample as scorers: the rules."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence

from headrace.services.reward.scorer import Build, Context, Reads, Sample, Scorer, Verdict
from headrace.wire.errors import ConfigError
from headrace.wire.process.lifecycle import wait_for

Rule = Callable[..., float | Verdict]


class RuleScorer(Scorer):
    """Applies one rule to each sample, on a thread. What the rule raises is that sample's failure, never a zero."""

    def __init__(
        self, rule: Rule, options: Mapping[str, object], context: Context, *, low: float, high: float, reads: Reads
    ) -> None:
        self._rule, self._options, self._context = rule, dict(options), context
        self.low, self.high, self.reads = low, high, reads

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """One verdict a sample; raises WaitTimeoutError if they take longer than the deadline."""
        work = asyncio.to_thread(lambda: [self._one(sample) for sample in samples])
        return await wait_for(work, self._context.timeout_s, f"the scorer {self._context.component}")

    def _one(self, sample: Sample) -> Verdict:
        try:
            found = self._rule(sample, **self._options)
        except Exception as error:  # A broken row, or a broken rule: both are reported.
            return Verdict.failure(said(error))
        return found if isinstance(found, Verdict) else Verdict(value=found)

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """The error that the rule raises for a row with these columns, for any completion; None = no error."""
        try:
            self._rule(Sample(prompt="", completion="0", columns=columns), **self._options)
        except Exception as error:
            return said(error)
        return None


def rule(
    function: Rule, *, low: float, high: float, reads: Reads = "sampled", check: Callable[..., None] | None = None
) -> Build:
    """Makes a rule a scorer. `check(**options)` raises ValueError for options that cannot work.

    A rule with a parameter `place` gets the place where answers are looked for.
    """

    def build(options: Mapping[str, object], context: Context) -> Scorer:
        try:
            inspect.signature(function).bind(None, **options)
            if check is not None:
                check(**options)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{context.component}: options: {error}") from error
        has_place = "place" in inspect.signature(function).parameters
        given = {**options, "place": context.place} if has_place else options
        return RuleScorer(function, given, context, low=low, high=high, reads=reads)

    return build


def said(error: BaseException) -> str:
    """Class and message of an exception, for people."""
    text = str(error.args[0]) if error.args else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
