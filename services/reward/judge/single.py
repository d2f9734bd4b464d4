"""`judge`: a chat model grades each answer for itself."""

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence

from headrace.services.reward.endpoint import EndpointError, RequestBudget, together
from headrace.services.reward.judge.judge_scorer import JudgeScorer
from headrace.services.reward.judge.prompts import SINGLE, Instructions, as_read, as_text, read_template, task_of
from headrace.services.reward.judge.settings import ChatOptions, JudgeOptions
from headrace.services.reward.judge.untrusted import neutral
from headrace.services.reward.judge.verdicts import Allowed
from headrace.services.reward.scorer import Context, Sample, Verdict

_LONGEST = 200
"""Characters of the judge's reasoning that a verdict keeps."""


class Judge(JudgeScorer):
    """Grades on a scale, mapped to 0..1; malformed verdicts and failed requests abstain."""

    Options = JudgeOptions

    def __init__(self, options: JudgeOptions, context: Context) -> None:
        self._options = options
        form: dict[str, Allowed] = {"reasoning": None} if options.reasoning else {}
        form["score"] = list(range(options.scale[0], options.scale[1] + 1))
        template = read_template(options.template, options.template_file, SINGLE, context.component)
        self._instructions = Instructions(
            template, options.criteria, form, ("answer",), options.block_chars, context.component
        )
        super().__init__(options, context, form)
        self.version = version_of("judge", options, self._instructions, options.scale, options.votes)

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """Returns one verdict per sample; raises ScorerDownError if the endpoint serves no request."""
        errand = self._chat.errand()
        return await together([self._judge(as_read(sample), errand) for sample in samples])

    async def _judge(self, sample: Sample, errand: RequestBudget) -> Verdict:
        votes = await together([self._vote(sample, errand) for _ in range(self._options.votes)])
        grades = [vote for vote in votes if not isinstance(vote, str)]
        if len(grades) * 2 <= len(votes):
            failures = [vote for vote in votes if isinstance(vote, str)]
            return Verdict.failure(failures[0])
        self.canaries.judged(sample, self._grade_canary)
        middle = statistics.median(grade for grade, _ in grades)
        first, last = self._options.scale
        nearest = min(grades, key=lambda vote: abs(vote[0] - middle))
        return Verdict(
            value=self._mapped(middle),
            reason=f"{middle:g} of {first}..{last}: {nearest[1]}".rstrip(": "),
            parts={"votes": float(len(grades))} if self._options.votes > 1 else {},
        )

    async def _vote(self, sample: Sample, errand: RequestBudget) -> tuple[int, str] | str:
        """Grade and reasoning, or why there is none."""
        try:
            return await self._grade(sample, errand)
        except EndpointError as error:
            return error.message

    async def _grade_canary(self, sample: Sample) -> float:
        return self._mapped((await self._grade(sample, self._chat.errand()))[0])

    async def _grade(self, sample: Sample, errand: RequestBudget) -> tuple[int, str]:
        blocks = {"prompt": ("PROMPT", task_of(sample)), "answer": ("ANSWER", sample.completion)}
        reference = sample.columns.get(self._options.reference)
        if reference is not None:
            blocks["reference"] = ("REFERENCE", as_text(reference))
        first, last = map(str, self._options.scale)
        found = await self._chat.ask(lambda key: self._instructions.messages(key, blocks, low=first, high=last), errand)
        return found["score"], reasoning_of(found)

    def _mapped(self, grade: float) -> float:
        first, last = self._options.scale
        return (grade - first) / (last - first)


def version_of(kind: str, options: ChatOptions, instructions: Instructions, *more: object) -> str:
    """Changes with model, rules, template, criteria, scale and how it is asked."""
    asked = [options.model, options.temperature, options.max_tokens, options.response_format, options.extra_body]
    text = json.dumps([kind, instructions.text, asked, options.reference, more], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def reasoning_of(found: Mapping[str, object]) -> str:
    """The judge's reasoning for people: one line, nothing hidden in it."""
    return " ".join(neutral(str(found.get("reasoning", ""))).split())[:_LONGEST]
