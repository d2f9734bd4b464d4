"""Who rejects an answer, leaves several open, or bounds it has not given it; signs, words and separators are read."""

import pytest

from services.reward.scorers.math_reading import read_key, read_said
from services.reward.scorers.numbers_said import final_number

NO_ANSWER: dict[str, list[str]] = {
    "18": [
        # Rejected.
        "The answer is not 18",
        "The answer isn't 18",
        "The answer is never 18.",
        "The answer is anything but 18",
        "The final answer cannot be 18.",
        "It is 17, not 18.",
        "#### not 18",
        "#### 17, not 18",
        "#### 17 (not 18)",
        "#### 17 rather than 18",
        "The answer is 17 instead of 18.",
        "The answer is 18? No, 17.",
        "So it is not equal to 18.",
        "We find that x \u2260 18",
        "It is 18.\nWell, it isn't 18.",
        "The answer is certainly not 18.",
        # Left open.
        "The answer is 18 or 19",
        "The answer is either 18 or 19.",
        "The answer is 18, 19 or 20.",
        "The answer is 18 and 19.",
        "The answer is 18, maybe 19.",
        "The answer is 18 or maybe x.",
        "The answer is eighteen or nineteen.",
        "#### 17 or 18",
        "#### 18 or 17",
        "#### 17 18",
        "#### 19, 18",
        "#### 18/17 or 3",
        "A: 18 (or 17)",
        "17 or 18",
        "17, 18",
        "The answer is 18\u201319.",
        "The answer is 18 to 19.",
        "It is 17 to 18",
        "x = 17 or x = 18",
        "x = 18 or x = 17",
        "I do not know. It could be anything: 1 2 3 ... 18",
        "It may be 18.\nI don't know.",
        # Bounds.
        "The answer is more than 18",
        "The answer is greater than 18.",
        "The answer is at least 18",
        "The answer is less than or equal to 18",
        "The answer is between 17 and 18",
        "The answer is 18 or more",
        "The answer is over 18.",
        "x > 18",
        "x \u2265 18",
        # Still to be worked out.
        "The answer is 18 minus 1",
        "The answer is 18 plus 1.",
        "The answer is 18 times 2.",
        "The answer is 18 x 2",
        "The answer is 18 divided by 2.",
        "The answer is twice 18.",
        "The answer is half of 18.",
        "The answer is 18 squared.",
        "The answer is 18 factorial",
        "The answer is 18 to the power of 3",
        "The answer is 18% of 200",
        "It is 3 times 18",
        "\\boxed{18\\text{ squared}}",
        "\\boxed{18\\text{ thirds}}",
        "\\boxed{18\\text{ factorial}}",
        # Scales.
        "#### 18 million",
        "The answer is 18 thousand",
        "\\boxed{18 \\text{ million}}",
        "The answer is 18k",
        "18.0000001",
        "Could be 17, could be 18",
        "The answer is 18 less than 20",
        "The answer is 18C2",
        "The answer is 18_9",
        "18 is wrong",
        "18 is not the answer.",
        "The answer is \u00b118",
    ],
    "2": ["The answer is 2\u215e.", "The answer is 2 \u2156", "The answer is - 2", "#### \u2212\\ 2"],
    "5": [
        "The answer is x = 5 or x = -5",
        "The answer is 5 feet 6 inches",
        "The answer is 5 feet 3",
        "The answer is 5'6\"",
        "five million",
        "#### 5 million",
        "\\boxed{5\\text{ million}}",
    ],
    "3": ["The answer is 3 hours and 20 minutes.", "It takes 1 hour and 3 minutes.", "\\boxed{3:30}"],
    "12": ["The answer is 12:30", "It starts at 11:12"],
    "1/2": ["The answer is $-\\frac{1}{2}$.", "#### $-\\frac{1}{2}$", "So we get x = -\\frac{1}{2}"],
    "C": [
        "The answer is not C",
        "The answer is D, not C",
        "The answer is D rather than C",
        "The answer is D instead of C.",
        "(C) or (D)",
        "The answer is (C) or (D)",
        "C. or D.",
        "A: C, D",
        "It cannot be C.",
    ],
    "True": ["The answer is True, or False", "The answer is True or False", "It is True, maybe", "True, false"],
    "no": ["The answer is no, yes", "#### no / yes", "The answer is not yes", "Yes or no", "No. Or yes"],
    "Paris": ["The answer is Paris/London", "It is not Paris but London.", "The answer is Paris, maybe London."],
    "x^2+1": ["The answer is at least $x^2+1$.", "It is twice $x^2+1$", "The answer is not $x^2+1$."],
    "24": ["2 dozen"],
    "-5": ["The answer is minus 5 or 5"],
    "1": ["The answer is one of them."],
    "Tuesday": ["It is Tuesday, Monday, or Friday", "The answer is Tuesday (or Monday, Friday)"],
    "1.6e-6": ["0.000002", "2e-6"],
    "6.02e-7": ["\\boxed{1e-6}"],
    "2516_8": ["\\boxed{2516_7}", "\\boxed{2516_{9}}", "The answer is 2517_8", "\\boxed{2517}"],
    "(1,2)": ["\\boxed{1,2}", "The answer is 1, 2"],
}
"""An answer -> completions that do not give it."""
RIGHT: dict[str, list[str]] = {
    "18": [
        "The answer is 18, not 17.",
        "The answer is not 17 but 18.",
        "It isn't 17, it is 18.",
        "It was 5, not 6, and so she has 18.",
        "It is not hard to see that she has 18 eggs.",
        "The answer is 18 for 3 days.",
        "The answer is 18 dollars in 3 days",
        "The answer is 18 (9 * 2 = 18).",
        "The answer is 18 (eighteen).",
        "The answer is 18, which is 3 more than 15.",
        "The answer is 18 or 18.0",
        "The answer is 18 apples a day.",
        "The answer is 17? No, 18.",
        "<answer>18</answer>",
        "#### 18<|im_end|>",
        "- 18",
        "So 3 days, 18 eggs.",
        "On day 3: 18 eggs",
        "She makes 9 * 2 = $<<9*2=18>>18 every day.",
        "The answer is 17. It cannot be 16, so the answer is 18.",
        "The number rose from 3 to 18",
        "x \\approx 18",
        "=> 18",
        "6+6+6 \u2192 18",
        "I am not sure, but I think the answer is 18.",
        "Not counting the 3 eaten ones, there are 18.",
        "At 12:30 there are 18 people.",
        "50% of 36 is 18",
    ],
    "-3/4": ["\\boxed{-\\frac{3}{4}}", "The answer is $-\\frac34$.", "#### -\\frac{3}{4}", "x = - \\frac{3}{4}"],
    "-2": ["The answer is - 2", "\\boxed{- 2}", "#### - 2", "x = - 2"],
    "10000": [
        "\\boxed{10\\,000}",
        "The answer is $10~000$",
        "\\boxed{10\\ 000}",
        "The answer is 10 000",
        "\\boxed{10 000}",
        "\\boxed{10'000}",
        "10k",
    ],
    "12345678": ["\\boxed{12\\;345\\;678}"],
    "5000000": ["\\boxed{5\\text{ million}}", "five million", "The answer is \\$5 million."],
    "0.05": ["\\boxed{5 \\text{ percent}}"],
    "0.5\\%": ["\\boxed{0.5}", "\\boxed{0.005}", "0.5 percent"],
    "1/3": ["\\boxed{0.\\overline{3}}", "0.333333"],
    "2.875": ["2\u215e", "\\boxed{2\\frac78}"],
    "25": ["twenty-five", "The answer is twenty five apples.", "5\u00b2 = 25"],
    "125": ["one hundred and twenty-five"],
    "12": ["a dozen"],
    "2000": ["#### 2\u00d710\u00b3"],
    "0.002": ["2\u00d710\u207b\u00b3"],
    "2516_8": ["\\boxed{2516_{8}}", "\\boxed{2516}", "The answer is $2516_8$.", "2516 (base 8)"],
    "D": ["The answer is D, not C", "The answer is D rather than C"],
    "London": ["It is London, not Paris.", "The answer is London rather than Paris"],
    "no": ["No, it is not.", "The answer is no, because it is odd.", "It is no."],
    "Paris": ["The answer is Paris, the capital of France.", "It is not London but Paris."],
    "x^2+1": ["The answer is $x^2+1$, not $x^2-1$."],
    "24": ["two dozen"],
    "-5": ["x = \u2013 5"],
    "C": ["The correct option is (C) 12", "Answer: C - Paris"],
    "True": ["The answer is True, as both are."],
    "7:30": ["\\boxed{7:30}", "The answer is 7:30 PM"],
    "(1,2)": ["\\boxed{(1, 2)}"],
}
"""An answer -> completions that give it."""


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(key, completion) for key, completions in table.items() for completion in completions]


@pytest.mark.parametrize(("key", "completion"), pairs(NO_ANSWER), ids=lambda value: repr(value)[:50])
def test_what_rejects_hedges_or_bounds_an_answer_does_not_give_it(key: str, completion: str) -> None:
    assert read_said(completion, read_key(key)).equal is False


@pytest.mark.parametrize(("key", "completion"), pairs(RIGHT), ids=lambda value: repr(value)[:50])
def test_what_says_more_than_the_answer_may_still_give_it(key: str, completion: str) -> None:
    assert read_said(completion, read_key(key)).equal is True


@pytest.mark.parametrize("completion", NO_ANSWER["18"][:30])
def test_the_numeric_rule_reads_the_same_way(completion: str) -> None:
    assert final_number(completion) != 18
