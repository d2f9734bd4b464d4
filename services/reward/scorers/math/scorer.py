"""Mathematical answers: equal as a person would call them equal.

What a simple comparison cannot decide is verified by math-verify, in processes that are killed when they take too
long. Equal answers are verified once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from importlib import metadata

from pydantic import Field

from headrace.services.reward import metrics
from headrace.services.reward.scorer import Context, Reads, Sample, Scorer, Verdict
from headrace.services.reward.scorers.answers.keys import column
from headrace.services.reward.scorers.answers.numbers import read_ratio
from headrace.services.reward.scorers.math.reading import (
    ExtractedAnswer,
    ReferenceAnswer,
    Refusal,
    is_words,
    read_key,
    read_said,
)
from headrace.services.reward.scorers.rules.functions import said as said_by
from headrace.services.reward.workers.errors import JobDiedError, JobTimeoutError, WorkerError
from headrace.services.reward.workers.pool import WorkerPool
from headrace.wire.config.settings import Table
from headrace.wire.errors import ConfigError
from headrace.wire.process.lifecycle import wait_for

_MEMORY_MB = 1024
_KEPT = 8192
_CHECKED = 500
_SHOWN = 80
_REFUSED: Mapping[Refusal, str] = {
    "": "",
    "no_answer": ", which is no answer where one is looked for, or more than one",
    "restated": ", which stands in the prompt: restated",
    "unevaluated": ", which is not worked out: unevaluated",
}

Pair = tuple[str, str]
"""The row's formula, and the completion's."""


class MathTable(Table):
    """Options of `math`."""

    answer: str = "answer"
    r"""The column with the answer: a number, a formula, or a solution that ends in `#### 18` or `\\boxed{18}`."""
    timeout_s: float = Field(2.0, gt=0)
    """Processor time for the verification of one completion; one that takes longer is wrong."""


def build(options: Mapping[str, object], context: Context) -> Scorer:
    """Raises ConfigError if math-verify is not installed."""
    table = context.options(MathTable, options)
    try:
        version = metadata.version("math-verify")
    except metadata.PackageNotFoundError:
        raise ConfigError(f"{context.component}: needs math-verify: pip install math-verify") from None
    return MathScorer(table, context, version)


class MathScorer(Scorer):
    """1 if the completion's final answer is the row's, and worked out, else 0."""

    low, high = 0.0, 1.0
    reads: Reads = "answer"

    def __init__(self, table: MathTable, context: Context, verifier: str) -> None:
        self._table, self._context = table, context
        self.version = f"4+math-verify-{verifier}"
        self._pool = WorkerPool(
            "headrace.services.reward.scorers.math.child:serve",
            processes=context.processes,
            deadline_s=table.timeout_s,
            what=f"{context.component}: the verification of an answer",
            memory_mb=_MEMORY_MB,
        )
        self._known: OrderedDict[Pair, Verdict] = OrderedDict()
        self._checked: dict[str, str | None] = {}

    async def load(self) -> None:
        """Starts its worker processes."""
        await self._pool.start()
        metrics.begin_math(self._context.component)

    async def close(self) -> None:
        """Ends the worker processes."""
        await self._pool.close()

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Why the row's answer cannot be read. The first few hundred formulas are parsed, the others only looked at."""
        try:
            key = read_key(column(columns, self._table.answer))
        except (KeyError, ValueError) as error:
            return said_by(error)
        if not _is_for_verifier(key):
            return None
        if key.text not in self._checked and len(self._checked) < _CHECKED:
            self._checked[key.text] = _unreadable(key)
        return self._checked.get(key.text)

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """One verdict a sample. The equal ones of a group, or of groups with one answer, are verified once."""
        seen = [self._look(sample) for sample in samples]
        pairs = {found[1] for found in seen if isinstance(found[1], tuple)}
        known = dict(zip(pairs, await self._verified(list(pairs)), strict=True))
        return [self._final(verdict, None if pair is None else known[pair]) for verdict, pair in seen]

    def _final(self, look: Verdict | None, verified: Verdict | None) -> Verdict:
        """The verdict of a look stands unless the row's own answer turned out to be unreadable."""
        verdict = verified if look is None or (verified is not None and verified.failed) else look
        assert verdict is not None
        for kind in verdict.parts:
            metrics.MATH_REFUSED.labels(self._context.component, kind).inc()
        return verdict

    def _look(self, sample: Sample) -> tuple[Verdict | None, Pair | None]:
        """A verdict, what is to be verified for it, or both: a verdict that stands if the row's answer is readable."""
        try:
            key = read_key(column(sample.columns, self._table.answer))
        except (KeyError, ValueError) as error:
            return Verdict.failure(said_by(error)), None
        said = read_said(sample.completion, key, sample.prompt, self._context.place)
        if said.refusal:
            alone = (key.formula, key.formula) if _is_for_verifier(key) else None
            return Verdict(value=0.0, reason=_reason(said), parts={said.refusal: 1.0}), alone
        if said.equal is None:
            return None, (key.formula, said.formula)
        return Verdict(value=float(said.equal), reason=_reason(said)), None

    async def _verified(self, pairs: Sequence[Pair]) -> list[Verdict]:
        # Each wait inside is bounded; this bounds their sum, also behind the other groups' pairs.
        most = self._context.timeout_s + 2 * self._pool.longest_s * len(pairs) * self._context.concurrency
        work = asyncio.gather(*(self._verdict(pair) for pair in pairs))
        return list(await wait_for(work, most, f"{self._context.component}: the verification of a group's answers"))

    async def _verdict(self, pair: Pair) -> Verdict:
        if pair in self._known:
            self._known.move_to_end(pair)
            return self._known[pair]
        verdict = await self._verify(pair)
        if not verdict.failed:
            self._known[pair] = verdict
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return verdict

    async def _verify(self, pair: Pair) -> Verdict:
        gold, said = pair
        try:
            found = await self._pool.run_fairly({"gold": gold, "said": said})
        except (JobTimeoutError, JobDiedError) as error:
            if gold != said:
                # The completion is to blame only where the row's own answer can be verified.
                alone = await self._verdict((gold, gold))
                return alone if alone.failed else Verdict(value=0.0, reason=f"{said[:_SHOWN]}: {error}")
            return Verdict.failure(f"the answer {gold[:_SHOWN]!r} cannot be verified: {error}")
        except WorkerError as error:
            return Verdict.failure(str(error))
        if not found["readable"]:
            return Verdict.failure(f"the answer {gold[:_SHOWN]!r} cannot be read as mathematics")
        parts = {str(found["refusal"]): 1.0} if found["refusal"] else {}
        reason = f"it says {said[:_SHOWN]} {found['why']}".strip()
        return Verdict(value=float(bool(found["equal"])), reason=reason, parts=parts)


def _is_for_verifier(key: ReferenceAnswer) -> bool:
    return key.number is None and not key.option and not is_words(key.text) and read_ratio(key.text, key.text) is None


def _reason(said: ExtractedAnswer) -> str:
    return f"it says {said.text[:_SHOWN]}{_REFUSED[said.refusal]}"


def _unreadable(key: ReferenceAnswer) -> str | None:
    from headrace.services.reward.scorers.math.child import is_readable

    return None if is_readable(key.formula) else f"the answer {key.text[:_SHOWN]!r} cannot be read"
