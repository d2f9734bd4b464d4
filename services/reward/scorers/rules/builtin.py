"""The rules: pure functions of one sample. What they raise is a broken row's failure, never a zero."""

from collections.abc import Sequence

from headrace.services.reward.scorer import Place, Sample, Verdict
from headrace.services.reward.scorers.answers.answers import find_answer, last_boxed, tagged_or_all
from headrace.services.reward.scorers.answers.keys import column, key_text
from headrace.services.reward.scorers.answers.numbers import read_number, same_number
from headrace.services.reward.scorers.rules.functions import rule
from headrace.services.reward.scorers.rules.patterns import PatternTimeoutError, compiled, in_time

_PROBES = ("", "a")
_LONG_WORD = 16
NO_ANSWER = Verdict(value=0.0, reason="there is no answer where one is looked for", parts={"no_answer": 1.0})


def _exact_match(sample: Sample, *, answer: str = "answer", strip: bool = True, place: Place = "") -> float | Verdict:
    """1 if the completion is the column `answer`, else 0; white space around both is ignored unless `strip = false`.

    Of a completion with a closed `<answer>` only what that holds; with a `place` what stands there.
    """
    said, wanted = tagged_or_all(sample.completion), str(column(sample.columns, answer))
    if place:
        found = find_answer(sample.completion, place=place)
        if found is None:
            return NO_ANSWER
        said = found.text
    return float(said.strip() == wanted.strip()) if strip else float(said == wanted)


def _numeric(sample: Sample, *, answer: str = "answer", tolerance: float = 0.0, place: Place = "") -> float | Verdict:
    """1 if the number that is the completion's answer (see `find_answer`) equals the row's, else 0.

    Raises ValueError if the row's answer is not a number: the row is broken, not the completion.
    """
    text = key_text(column(sample.columns, answer))
    wanted = read_number(text, text)
    if wanted is None:
        raise ValueError(f"the answer {text[:80]!r} holds no number")
    found = find_answer(sample.completion, place=place)
    said = None if found is None else read_number(found.text, sample.prompt)
    if said is None:
        return NO_ANSWER
    is_near = said.scale == wanted.scale and said.unit == wanted.unit and abs(said.value - wanted.value) <= tolerance
    return float(said.is_worked_out and (is_near or same_number(wanted, said)))


def _boxed(sample: Sample, *, answer: str = "answer") -> float | Verdict:
    r"""1 if the content of the last `\boxed{}` is the answer, however the white space stands, else 0.

    The answer may be a whole solution with `####` or a box of its own. Raises ValueError for an empty one.
    """
    wanted = "".join(key_text(column(sample.columns, answer)).split())
    said = last_boxed(sample.completion)
    return NO_ANSWER if said is None else float("".join(said.split()) == wanted)


def _matches_format(sample: Sample, *, pattern: str) -> float | Verdict:
    """1 if the regular expression matches the whole completion (`.` matches line ends), else 0.

    A completion on which the pattern backtracks without end does not match; the sample fails only if the pattern does
    not end on any text. Other work goes on meanwhile.
    """
    match = compiled(pattern).fullmatch
    try:
        return float(in_time(match, sample.completion.strip()))
    except PatternTimeoutError as error:
        for probe in _PROBES:
            in_time(match, probe)
        return Verdict(value=0.0, reason=str(error))


def _length(sample: Sample, *, target: int, slope: float = 1.0) -> float | Verdict:
    """0 up to `target` tokens, then falling by `slope` for each further `target` tokens, to -1 at the lowest.

    A completion that was cut off by the limit gets -1.
    """
    if sample.truncated:
        return -1.0
    tokens = sample.tokens
    if tokens is None:
        return _NO_TOKENS
    return max(-1.0, -slope * max(0, tokens - target) / target)


def _overlong(sample: Sample, *, max_tokens: int, cache: int) -> float | Verdict:
    """Soft overlong punishment: 0 up to `max_tokens - cache` tokens, falling linearly to -1 at `max_tokens`.

    DAPO, arXiv 2503.14476, equation 13.
    """
    tokens = sample.tokens
    if tokens is None:
        return _NO_TOKENS
    return max(-1.0, min(0.0, (max_tokens - cache - tokens) / cache))


def _repetition(sample: Sample, *, size: int = 4) -> float:
    """0 where no run of `size` words comes twice, towards -1 the more of them are repetitions.

    Minus the share of n-grams that were there before, after the n-gram penalty of arXiv 2502.03373. Text without
    spaces (Chinese, or one endless word) is taken by characters, twice as many.
    """
    text = sample.completion.lower()
    pieces: list[str] | str = text.split()
    if not pieces:
        return 0.0
    if sum(map(len, pieces)) > _LONG_WORD * len(pieces):
        pieces, size = "".join(pieces), 2 * size
    total = len(pieces) - size + 1
    if total <= 0:
        return 0.0
    return _distinct_runs(pieces, size) / total - 1.0


def _distinct_runs(pieces: Sequence[str], size: int) -> int:
    """How many different runs of `size` pieces there are.

    Runs are named by the names of their two halves, so that long ones take hardly more time than short ones.
    """
    names: dict[object, int] = {}
    runs = [names.setdefault(piece, len(names)) for piece in pieces]
    width = 1
    while width < size:
        step = min(width, size - width)
        names = {}
        runs = [names.setdefault(pair, len(names)) for pair in zip(runs, runs[step:], strict=False)]
        width += step
    return len(set(runs))


_NO_TOKENS = Verdict.failure("only text came: tokens cannot be counted")


def _pattern_compiles(*, pattern: str) -> None:
    compiled(pattern)


def _has_target(*, target: int, slope: float = 1.0) -> None:
    if target < 1 or slope < 0:
        raise ValueError(f"target = {target}, slope = {slope}: a target of at least 1, a slope of at least 0")


def _has_cache(*, max_tokens: int, cache: int) -> None:
    if not 1 <= cache <= max_tokens:
        raise ValueError(f"cache = {cache}: at least 1, at most max_tokens = {max_tokens}")


def _has_size(*, size: int = 4) -> None:
    if size < 1:
        raise ValueError(f"size = {size}: at least 1")


exact_match = rule(_exact_match, low=0.0, high=1.0, reads="answer")
numeric = rule(_numeric, low=0.0, high=1.0, reads="answer")
boxed = rule(_boxed, low=0.0, high=1.0, reads="answer")
matches_format = rule(_matches_format, low=0.0, high=1.0, reads="all", check=_pattern_compiles)
length = rule(_length, low=-1.0, high=0.0, check=_has_target)
overlong = rule(_overlong, low=-1.0, high=0.0, check=_has_cache)
repetition = rule(_repetition, low=-1.0, high=0.0, check=_has_size)
