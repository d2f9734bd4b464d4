"""`module:function`: a function of one completion, `function(completion, **columns, **options) -> float`."""

from collections.abc import Mapping, Sequence

from headrace.services.reward.scorer import Context, Sample, Verdict
from headrace.services.reward.user.messages import messages_of
from headrace.services.reward.user.scorer import PROMPT_MESSAGES, Call, UserScorer, refused, verdict

_MESSAGES = "messages"
"""Argument that gets all messages of the conversation, unless the data has such a column."""
_PROMISED: list[object] = []


class PlainScorer(UserScorer):
    """One call a sample; it gets the completion's text, the row's columns and the options.

    Of an episode the completion is the policy's last message; a function with an argument `messages` gets all.
    """

    def __init__(self, target: str, options: Mapping[str, object], context: Context) -> None:
        super().__init__("headrace.services.reward.user.child.plain:serve", {"target": target}, context)
        self._options = dict(options)

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Whether the function takes the columns; it is not called."""
        found = refused(self._signature, "", **self._keywords(columns))
        return found and f"it is called with the data's columns as keywords: {found}; let it take **columns"

    def _calls(self, samples: Sequence[Sample]) -> list[Call]:
        return [
            Call(job={"completion": one.completion, "keywords": self._of(one)}, positions=(position,))
            for position, one in enumerate(samples)
        ]

    def _read(self, answer: Mapping[str, object]) -> list[Verdict]:
        return [verdict(answer["value"])]

    def _of(self, sample: Sample) -> dict[str, object]:
        found = self._keywords(sample.columns)
        if found.get(_MESSAGES) is _PROMISED:
            found[_MESSAGES] = messages_of(sample)
        return found

    def _keywords(self, columns: Mapping[str, object]) -> dict[str, object]:
        """Messages and the reserved column only for a function that names them: the others know nothing of them."""
        names = self._signature.parameters if self._signature else ()
        if _MESSAGES in names and _MESSAGES not in columns and _MESSAGES not in self._options:
            columns = {**columns, _MESSAGES: _PROMISED}
        own = {key: value for key, value in columns.items() if key != PROMPT_MESSAGES or key in names}
        return own | self._options
