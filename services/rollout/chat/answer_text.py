"""Decides how much of a growing answer can be emitted already. Pure."""

from collections.abc import Sequence

_UNFINISHED = "\ufffd"
"""What the tokenizer decodes an incomplete character to."""


class AnswerText:
    """Receives the text of all tokens so far, repeatedly, and emits what is new and final.

    A stop text ends the answer just before it; a possible beginning of one, or of a character, is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._said = 0
        self.stopped = False
        """A stop text was found."""

    def take(self, text: str, *, last: bool) -> str:
        """The new and final part of `text`; with `last`, everything new, since no more follows."""
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
        """Number of characters at the end that may still change."""
        broken = len(text) - len(text.rstrip(_UNFINISHED))
        whole = text[: len(text) - broken]
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        lengths = range(min(longest, len(whole)), 0, -1)
        begun = next((n for n in lengths if any(stop.startswith(whole[-n:]) for stop in self._stops)), 0)
        return broken + begun
