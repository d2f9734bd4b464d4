"""The rules: pure functions of one sample. What they raise is a broken row's failure, never a zero."""

from collections.abc import Mapping, Sequence

from headrace.services.reward.scorer import Sample, Verdict
from headrace.services.reward.scorers.answers.answers import find_answer, last_boxed
from headrace.services.reward.scorers.answers.final_number import final_number
from headrace.services.reward.scorers.rules.functions import rule
from headrace.services.reward.scorers.rules.patterns import PatternTimeoutError, compiled, in_time

_PROBES = ("", "a")
_LONG_WORD = 16


def column(columns: Mapping[str, object], name: str) -> object:
    """A column of the data row; raises KeyError naming those that there are."""
    if name not in columns:
        raise KeyError(f"the data has no column {name!r}; columns: {', '.join(sorted(columns)) or 'none'}")
    return columns[name]


def _exact_match(sample: Sample, *, answer: str = "answer", strip: bool = True) -> float:
    """1 if the completion is the column `answer`, else 0; white space around both is ignored unless `strip = false`."""
    said, wanted = sample.completion, str(column(sample.columns, answer))
    return float(said.strip() == wanted.strip()) if strip else float(said == wanted)


def _numeric(sample: Sample, *, answer: str = "answer", tolerance: float = 0.0) -> float:
    """1 if the completion's final number equals the answer's (see `numbers`), else 0.

    Raises ValueError if the answer itself holds no number: the row is broken, not the completion.
    """
    text = str(column(sample.columns, answer))
    wanted = final_number(text)
    if wanted is None:
        raise ValueError(f"the answer {text[:80]!r} holds no number")
    said = final_number(sample.completion)
    return float(said is not None and abs(said - wanted) <= tolerance)


def _boxed(sample: Sample, *, answer: str = "answer") -> float:
    r"""1 if the content of the last `\boxed{}` is the answer, however the white space stands, else 0.

    The answer may be a whole solution with `####` or a box of its own. Raises ValueError for an empty one.
    """
    text = str(column(sample.columns, answer))
    found = find_answer(text) if "####" in text or "\\boxed" in text else None
    wanted = "".join((found.text if found else text).split())
    if not wanted:
        raise ValueError("the answer is empty")
    said = last_boxed(sample.completion)
    return float(said is not None and "".join(said.split()) == wanted)


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


exact_match = rule(_exact_match, low=0.0, high=1.0)
numeric = rule(_numeric, low=0.0, high=1.0)
boxed = rule(_boxed, low=0.0, high=1.0)
matches_format = rule(_matches_format, low=0.0, high=1.0, check=_pattern_compiles)
length = rule(_length, low=-1.0, high=0.0, check=_has_target)
overlong = rule(_overlong, low=-1.0, high=0.0, check=_has_cache)
repetition = rule(_repetition, low=-1.0, high=0.0, check=_has_size)
