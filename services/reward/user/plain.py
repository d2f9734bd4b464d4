"""`module:function`: a function of one completion, `function(completion, **columns, **options) -> float`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.user.calls import about, find, plain, settled
from headrace.services.reward.user.scorer import PROMPT_MESSAGES, Call, UserScorer, refused, verdict


def build(target: str, options: Mapping[str, object], context: Context) -> Scorer:
    """The scorer of `target`; its options are the function's own keywords."""
    return PlainScorer(target, options, context)


class PlainScorer(UserScorer):
    """One call a sample; it gets the completion's text, the row's columns and the options."""

    def __init__(self, target: str, options: Mapping[str, object], context: Context) -> None:
        super().__init__("headrace.services.reward.user.plain:serve", {"target": target}, context)
        self._options = dict(options)

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Whether the function takes the columns; it is not called."""
        found = refused(self._signature, "", **self._keywords(columns))
        return found and f"it is called with the data's columns as keywords: {found}; let it take **columns"

    def _calls(self, samples: Sequence[Sample]) -> list[Call]:
        return [
            Call(job={"completion": one.completion, "keywords": self._keywords(one.columns)}, positions=(position,))
            for position, one in enumerate(samples)
        ]

    def _read(self, answer: Mapping[str, object]) -> list[Verdict]:
        return [verdict(answer["value"])]

    def _keywords(self, columns: Mapping[str, object]) -> dict[str, object]:
        """The reserved column only for a function that names it: the others know nothing of it."""
        names = self._signature.parameters if self._signature else ()
        own = {key: value for key, value in columns.items() if key != PROMPT_MESSAGES or key in names}
        return own | self._options


def serve(target: str) -> Callable[[dict[str, object]], dict[str, object]]:
    """What a worker runs."""
    function = find(target)

    def answer(job: dict[str, Any]) -> dict[str, object]:
        if "about" in job:
            return about(function)
        return {"value": plain(settled(function(job["completion"], **job["keywords"])))}

    return answer
