"""The rules score what they say they score; a broken row is a failure, never a zero."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from headrace.services.reward.scorer import Context, Sample, Verdict
from headrace.services.reward.scorers.registry import build_scorer


async def verdict(name: str, text: str, options: Mapping[str, Any] | None = None, **columns: Any) -> Verdict:
    scorer = build_scorer(name, options or {}, Context(component=name))
    (found,) = await scorer.score([Sample(prompt="", completion=text, columns=columns)])
    if found.value is not None:
        assert scorer.low <= found.value <= scorer.high
    return found


async def value(name: str, text: str, options: Mapping[str, Any] | None = None, **columns: Any) -> float | None:
    return (await verdict(name, text, options, **columns)).value


async def of_tokens(name: str, tokens: int, options: Mapping[str, Any], *, truncated: bool = False) -> float | None:
    scorer = build_scorer(name, options, Context(component=name))
    sample = Sample(prompt="", completion="x", completion_ids=np.zeros(tokens, np.int32), truncated=truncated)
    return (await scorer.score([sample]))[0].value


async def test_numeric_compares_values_not_spellings() -> None:
    answer = "Some steps <<2*9=18>>\n#### 18"
    assert await value("numeric", "The answer is $18.00", answer=answer) == 1.0
    assert await value("numeric", "Answer: 19", answer=answer) == 0.0
    assert [await value("numeric", said, answer="5 m") for said in ("5 m", "5 km", "5")] == [1.0, 0.0, 0.0]
    assert await value("numeric", "18M", answer="18") == 0.0
    assert await value("numeric", "18.4", {"tolerance": 0.5}, answer=answer) == 1.0
    assert (await verdict("numeric", "It is 18, I think", answer=answer)).parts == {"no_answer": 1.0}


async def test_a_row_without_a_number_is_a_failure_not_a_zero() -> None:
    found = await verdict("numeric", "3", answer="many")
    assert found.value is None
    assert found.failed
    assert "holds no number" in found.reason
    assert "holds no number" in str(build_scorer("numeric", {}, Context(component="n")).problem({"answer": "many"}))


async def test_a_missing_column_is_named() -> None:
    found = await verdict("exact_match", "3", {"answer": "label"}, answer="3")
    assert found.failed
    assert "no column 'label'" in found.reason


async def test_exact_match_ignores_outer_white_space_only() -> None:
    assert await value("exact_match", " 3\n", answer="3") == 1.0
    assert await value("exact_match", " 3\n", {"strip": False}, answer="3") == 0.0
    assert await value("exact_match", "3 3", answer="33") == 0.0
    assert await value("exact_match", "3", answer=3) == 1.0


async def test_boxed_compares_the_last_box_white_space_aside() -> None:
    assert await value("boxed", r"\boxed{4} no, \boxed{ x +1 }", answer="x+ 1") == 1.0
    assert await value("boxed", r"\boxed{\frac{1}{2}}", answer=r"so it is $\boxed{\frac12}$") == 0.0
    assert await value("boxed", r"\boxed{\frac{1}{2}}", answer=r"so it is $\boxed{\frac{1}{2}}$") == 1.0
    assert await value("boxed", "18", answer="18") == 0.0
    assert await value("boxed", r"\boxed{18}", answer="3 * 6\n#### 18") == 1.0
    assert (await verdict("boxed", r"\boxed{}", answer=" ")).failed


async def test_format_must_match_the_whole_completion() -> None:
    options = {"pattern": r"<think>.*</think>\s*\d+"}
    assert await value("format", "<think>a\nb</think> 7", options) == 1.0
    assert await value("format", "well <think>a</think> 7", options) == 0.0


async def test_a_completion_on_which_a_pattern_backtracks_without_end_does_not_match() -> None:
    found = await verdict("format", "a" * 40 + "!", {"pattern": "(a|aa)+"})
    assert found.value == 0.0
    assert "a pattern did not end within 0.5 s on this text" in found.reason
    assert await value("format", "aaa", {"pattern": "(a|aa)+"}) == 1.0


async def test_a_pattern_that_times_out_on_any_text_is_a_failure_and_not_a_zero() -> None:
    pattern = "(?:|a|)(?:|b|)" * 30 + "(?!)"
    assert (await verdict("format", "whatever", {"pattern": pattern})).failed


async def test_the_length_penalty_is_zero_up_to_the_target_and_falls_after_it() -> None:
    assert await of_tokens("length", 2, {"target": 2}) == 0.0
    assert await of_tokens("length", 3, {"target": 2, "slope": 0.5}) == -0.25
    assert await of_tokens("length", 9, {"target": 2}) == -1.0
    assert await of_tokens("length", 1, {"target": 2}, truncated=True) == -1.0


@pytest.mark.parametrize(
    ("tokens", "expected"), [(0, 0.0), (12, 0.0), (13, -0.25), (15, -0.75), (16, -1.0), (40, -1.0)]
)
async def test_overlong_equals_equation_13_of_the_dapo_paper(tokens: int, expected: float) -> None:
    assert await of_tokens("overlong", tokens, {"max_tokens": 16, "cache": 4}) == expected


async def test_repetition_is_the_share_of_repeated_runs() -> None:
    assert await value("repetition", "one two three four five six") == 0.0
    assert await value("repetition", "") == 0.0
    assert await value("repetition", "so so") == 0.0
    # Nine words are eight pairs, of which "a b", "b c", "c a" are the distinct ones.
    assert await value("repetition", "a b c a b c A B C", {"size": 2}) == pytest.approx(3 / 8 - 1)
    looping = await value("repetition", "wait, let me check again. " * 200)
    assert looping is not None
    assert looping < -0.98


async def test_repetition_of_long_runs_is_counted_exactly_and_in_time() -> None:
    words = " ".join(str(number) for number in range(10_000))
    spent = {}
    for size in (2, 2000):
        begin = time.process_time()
        assert await value("repetition", words, {"size": size}) == 0.0
        runs = 20_001 - size
        assert await value("repetition", f"{words} {words}", {"size": size}) == pytest.approx(10_000 / runs - 1)
        spent[size] = time.process_time() - begin
    # Two thousand words a run hashed anew at each place would take hundreds of times as long as two.
    assert spent[2000] < 50 * spent[2]
    for size in (1, 2, 3, 5, 7):
        pieces = ("a b c a b a c b a b c " * 3).split()
        runs = [tuple(pieces[at : at + size]) for at in range(len(pieces) - size + 1)]
        assert await value("repetition", " ".join(pieces), {"size": size}) == len(set(runs)) / len(runs) - 1


async def test_repetition_sees_scripts_without_spaces_and_endless_words() -> None:
    chinese = "\u6211\u4eec\u6765\u770b\u4e00\u4e0b\u8fd9\u4e2a\u95ee\u9898\u7684\u7b54\u6848\u662f\u4ec0\u4e48"
    assert await value("repetition", chinese) == 0.0
    for looped in (chinese * 50, "ha" * 500):
        found = await value("repetition", looped)
        assert found is not None
        assert found < -0.9
