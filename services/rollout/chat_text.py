"""What of a growing answer may be said already. Pure."""

from collections.abc import Sequence

_UNFINISHED = "\ufffd"
"""What the tokenizer decodes the first bytes of a character to."""


class AnswerText:
    """Takes the text of all tokens so far again and again, and gives out what is new and certain.

    A stop text ends the answer before it; what might be the beginning of one, or of a character, is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._said = 0
        self.stopped = False
        """A stop text has come."""

    def take(self, text: str, *, last: bool) -> str:
        """What is new in `text`; with `last`, all of it: nothing comes behind."""
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            text = text[: min(found)]
        elif not last:
            text = text[: len(text) - self._uncertain(text)]
        new = text[self._said :]
        self._said = max(self._said, len(text))
        return new

    def _uncertain(self, text: str) -> int:
        """How many characters at the end may yet become something else."""
        broken = len(text) - len(text.rstrip(_UNFINISHED))
        whole = text[: len(text) - broken]
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        lengths = range(min(longest, len(whole)), 0, -1)
        begun = next((n for n in lengths if any(stop.startswith(whole[-n:]) for stop in self._stops)), 0)
        return broken + begun
