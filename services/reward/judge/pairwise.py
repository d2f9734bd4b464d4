"""`pairwise_judge`: a chat model picks the better of two answers to one prompt; the score is the share of wins.

Each pair is judged in both orders, since judges favour a position ("Large Language Models are not Fair Evaluators",
arXiv 2305.17926): two verdicts that contradict each other are a tie, and counted.
"""

import functools
from collections.abc import Mapping, Sequence

from headrace.services.reward import metrics
from headrace.services.reward.endpoint import EndpointError, RequestBudget, together
from headrace.services.reward.judge.judge_scorer import JudgeScorer
from headrace.services.reward.judge.pairs import round_robin, standings
from headrace.services.reward.judge.prompts import PAIRWISE, Instructions, as_read, as_text, read_template, task_of
from headrace.services.reward.judge.settings import PairwiseOptions
from headrace.services.reward.judge.single import version_of
from headrace.services.reward.judge.verdicts import Allowed
from headrace.services.reward.scorer import Context, Sample, Verdict

_POINTS = {"A": 1.0, "tie": 0.5, "B": 0.0}


class PairwiseJudge(JudgeScorer):
    """Win shares in 0..1 within a group, or against the reference answer."""

    Options = PairwiseOptions

    def __init__(self, options: PairwiseOptions, context: Context) -> None:
        self._options, self._name = options, context.component
        form: dict[str, Allowed] = {"reasoning": None} if options.reasoning else {}
        form["winner"] = list(_POINTS)
        template = read_template(options.template, options.template_file, PAIRWISE, context.component)
        needs = ("first", "second")
        self._instructions = Instructions(
            template, options.criteria, form, needs, options.block_chars, context.component
        )
        super().__init__(options, context, form)
        self.version = version_of("pairwise_judge", options, self._instructions, options.against)

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """A row without a reference, where answers meet it."""
        if self._options.against == "reference" and columns.get(self._options.reference) is None:
            return f"the column {self._options.reference!r}, which answers are compared with, is missing"
        return None

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """Returns one verdict per sample; raises ScorerDownError if the endpoint serves no request."""
        errand, samples = self._chat.errand(), [as_read(sample) for sample in samples]
        if self._options.against == "reference":
            return await together([self._against_reference(sample, errand) for sample in samples])
        groups: dict[str, list[int]] = {}
        for index, sample in enumerate(samples):
            # Samples of no group answer prompts of their own.
            groups.setdefault(sample.group or f" {index}", []).append(index)
        played = [self._tournament([samples[index] for index in rows], errand) for rows in groups.values()]
        found = await together(played)
        verdicts = {
            index: verdict
            for rows, group in zip(groups.values(), found, strict=True)
            for index, verdict in zip(rows, group, strict=True)
        }
        return [verdicts[index] for index in range(len(samples))]

    async def _tournament(self, samples: list[Sample], errand: RequestBudget) -> list[Verdict]:
        pairs = round_robin(len(samples), self._options.max_pairs)
        results = await together([self._compare(samples[a], samples[b].completion, errand) for a, b in pairs])
        met = dict(zip(pairs, results, strict=True))
        points = {pair: None if isinstance(result, str) else result for pair, result in met.items()}
        verdicts = []
        for index, standing in enumerate(standings(len(samples), points)):
            mine = {pair: result for pair, result in met.items() if index in pair}
            failed = [result for result in mine.values() if isinstance(result, str)]
            unasked = all(isinstance(result, str) or _are_equal(samples, pair) for pair, result in mine.items())
            if not standing.planned:
                reason = f"alone in its group, or max_pairs = {self._options.max_pairs} is too few for it"
                verdicts.append(Verdict(value=None, reason=reason, unasked=True))
            elif standing.share is None or (failed and unasked):  # Equal answers alone make no tournament.
                verdicts.append(Verdict.failure(failed[0]))
            else:
                reason = f"{standing.points:g} of {standing.decided} comparisons won"
                parts = {"comparisons": float(standing.decided)}
                verdicts.append(Verdict(value=standing.share, reason=reason, parts=parts, unasked=unasked))
        self._watch(samples, verdicts)
        return verdicts

    async def _against_reference(self, sample: Sample, errand: RequestBudget) -> Verdict:
        reference = self._reference(sample)
        if reference is None:
            missing = f"no column {self._options.reference!r} to compare with"
            return Verdict(value=None, reason=missing, unasked=True)
        found = await self._compare(sample, reference, errand)
        if isinstance(found, str):
            return Verdict.failure(found)
        self.canaries.judged(sample, functools.partial(self._meets, rival=reference))
        words = {1.0: "better than", 0.5: "as good as", 0.0: "worse than"}
        unasked = sample.completion == reference
        return Verdict(value=found, reason=f"{words[found]} the reference", unasked=unasked)

    async def _compare(self, sample: Sample, rival: str, errand: RequestBudget) -> float | str:
        """The sample's points, or why there are none."""
        if sample.completion == rival:
            metrics.JUDGE_PAIRS.labels(self._name, "same").inc()
            return 0.5
        try:
            return await self._points(sample, rival, errand)
        except EndpointError as error:
            metrics.JUDGE_PAIRS.labels(self._name, "failed").inc()
            return error.message

    async def _points(self, sample: Sample, rival: str, errand: RequestBudget) -> float:
        """1, 0.5 or 0, from both orders; raises EndpointError."""
        one, other = await together(
            [self._ask(sample, sample.completion, rival, errand), self._ask(sample, rival, sample.completion, errand)]
        )
        mine, turned = _POINTS[one], 1 - _POINTS[other]
        metrics.JUDGE_PAIRS.labels(self._name, "agreed" if mine == turned else "contradicted").inc()
        return mine if mine == turned else 0.5

    async def _meets(self, canary: Sample, *, rival: str) -> float:
        return await self._points(canary, rival, self._chat.errand())

    async def _ask(self, sample: Sample, first: str, second: str, errand: RequestBudget) -> str:
        blocks = {
            "prompt": ("PROMPT", task_of(sample)),
            "first": ("ANSWER_A", first),
            "second": ("ANSWER_B", second),
        }
        reference = self._reference(sample)
        if reference is not None and self._options.against == "group":
            blocks["reference"] = ("REFERENCE", reference)
        found = await self._chat.ask(lambda key: self._instructions.messages(key, blocks), errand)
        return str(found["winner"])

    def _watch(self, samples: Sequence[Sample], verdicts: Sequence[Verdict]) -> None:
        """A canary meets the reference, or else the best answer of the group."""
        shares = [-1.0 if verdict.value is None else verdict.value for verdict in verdicts]
        best = samples[shares.index(max(shares))]
        rival = self._reference(best) or best.completion
        for sample, verdict in zip(samples, verdicts, strict=True):
            if verdict.value is not None:
                self.canaries.judged(sample, functools.partial(self._meets, rival=rival))

    def _reference(self, sample: Sample) -> str | None:
        found = sample.columns.get(self._options.reference)
        return None if found is None else as_text(found)


def _are_equal(samples: Sequence[Sample], pair: tuple[int, int]) -> bool:
    return samples[pair[0]].completion == samples[pair[1]].completion
