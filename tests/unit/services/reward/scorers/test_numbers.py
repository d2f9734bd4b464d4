"""Numbers are read as a person reads them, wherever in a text they stand; hostile texts cost no time."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.scorers.answers.answers import last_boxed
from headrace.services.reward.scorers.answers.final_number import final_number
from headrace.services.reward.scorers.answers.numbers import Number, read_number, same_number
from headrace.services.reward.scorers.math.reading import read_key, read_said

TEXTS = {
    "so 3 + 4 = 7.": 7,
    "#### 1,234": 1234,
    "5 apples\n#### 18\n": 18,
    "#### Step 3: add\nso it is 5": 5,
    "#### Final Answer: 18": 18,
    "#### Final Answer\n18": 18,
    "####\n18": 18,
    r"thus \boxed{42} and 7 more": 42,
    r"\boxed{\frac{1}{2}} = 0.5, \boxed{0.5}": Fraction(1, 2),
    r"\boxed{18} or rather \boxed{20}": 20,
    r"\boxed{x = 18}": 18,
    r"\boxed{x = 3 \cdot 6 = 18}": 18,
    r"\boxed{\text{Total: } 18}": 18,
    r"\boxed{18\text{ cm}^2}": 18,
    r"\boxed{7": 7,
    "$18.00": 18,
    "-3": -3,
    "\u22123": -3,
    "It's -$3": -3,
    "$-3": -3,
    "negative 3": -3,
    "1/4": Fraction(1, 4),
    "3/0": None,
    "no number": None,
    "": None,
    " \n": None,
    "#### none": None,
    "A: 18": 18,
    "18 dollars": 18,
    "18%": 18,
    "**18**": 18,
    "The answer is 18.": 18,
    "The answer is **18**. I used 3 steps.": 18,
    "The answer is 3 + 4 = 7": 7,
    "The answer is 18 because 9 + 4 = 13 and we go on.": 18,
    "the answer is not 18 but 20": 20,
    "Answer:\n\n18": 18,
    "answer is: \\(18\\)": 18,
    "The final answer is **$18.00 per hour**.": 18,
    "18.": 18,
    "The answer is 18!": 18,
    "eighteen dollars": 18,
    "The answer is eighteen.": 18,
    ".5": Fraction(1, 2),
    "1.8e3": 1800,
    r"1.8 \times 10^3": 1800,
    "1.8 x 10^{3}": 1800,
    r"\frac{3}{4}": Fraction(3, 4),
    r"\dfrac34": Fraction(3, 4),
    "1 1/2": Fraction(3, 2),
    r"1\frac{1}{2}": Fraction(3, 2),
    "1\u00bd": Fraction(3, 2),
    r"$1{,}800": 1800,
    r"\$1,800": 1800,
    "5 - 3": None,
    "10-3": None,
    "- 18": 18,
    "3x": None,
    "the 18th of May": None,
    r"30^\circ": 30,
    "USD 18": 18,
    "She earns 9 * $2 = $18 every 3 days.": 18,
    "1e999999": None,
    "9" * 5000: None,
}
"""What is said -> the number that a person takes from it."""


@pytest.mark.parametrize(("text", "number"), list(TEXTS.items()), ids=lambda value: repr(value)[:40])
def test_the_final_number_is_the_one_a_person_reads(text: str, number: int | Fraction | None) -> None:
    assert final_number(text) == number


@pytest.mark.parametrize(
    "piece",
    [
        "x + 2",
        "3x",
        "2\\sqrt{3}",
        "18 or 20",
        "18 and 20",
        "(1, 2)",
        "[0, 1)",
        "x^2 = 4",
        "3:4",
        "2\\pi",
        "5 - 3",
        "18 (20)",
    ],
)
def test_what_is_more_than_a_number_is_none(piece: str) -> None:
    assert read_number(piece) is None


@pytest.mark.parametrize(
    ("wanted", "said", "same"),
    [
        ("18", "18%", True),
        ("18%", "18", True),
        ("0.5", "50%", True),
        ("50%", "0.5", True),
        ("0.5", "0.5%", False),
        ("50%", "51%", False),
        ("2000000", "2 million", True),
        ("2", "2 million", False),
        ("8", "800%", False),
        ("1", "100%", True),
        ("1.5", "150%", True),
        ("3", "2 million", False),
        ("1/3", "0.333333", True),
        ("1/3", "0.33", False),
        ("1000000", "1000001", False),
        ("0", "0.0000001", False),
        ("3/4", "0.75", True),
        ("0.5%", "0.5", True),
        ("0.5%", "0.005", True),
        ("0.5%", "50", False),
        ("0.0000016", "0.000002", False),
        ("1/2", "0.5000001", False),
        ("100/3", "33.3333", True),
        ("100/3", "33.33", False),
        ("1/30", "0.0333333", True),
        ("-1/3", "0.333333", False),
        ("18", "18.0000001", False),
    ],
)
def test_a_percent_sign_may_be_left_away_and_six_digits_are_enough(wanted: str, said: str, same: bool) -> None:
    one, other = read_number(wanted), read_number(said)
    assert isinstance(one, Number)
    assert isinstance(other, Number)
    assert same_number(one, other) is same


@given(st.integers(-(10**12), 10**12), st.text(alphabet=" abc\n.,=", max_size=30))
def test_a_trailing_integer_is_read_whatever_stands_before_it(number: int, before: str) -> None:
    assert final_number(f"{before} {number}") == number


@given(st.fractions(min_value=0, max_denominator=999))
def test_a_fraction_is_read_in_every_spelling(value: Fraction) -> None:
    top, bottom = value.numerator, value.denominator
    for text in (f"{top}/{bottom}", rf"\frac{{{top}}}{{{bottom}}}", rf"\boxed{{\tfrac{{{top}}}{{{bottom}}}}}"):
        assert final_number(text) == value
    if top > bottom > 1:
        assert final_number(f"{top // bottom} {top % bottom}/{bottom}") == value


def test_a_box_is_read_to_its_own_brace() -> None:
    assert last_boxed(r"\boxed{\{1, 2\}} }") == r"\{1, 2\}"
    assert last_boxed(r"\boxed{a} \boxed{b") == "a"
    assert last_boxed(r"\fbox{3}") == "3"
    assert last_boxed(r"is \boxed 23.") == "23"
    assert last_boxed("none") is None


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" * 50_000,
        "answer " * 50_000,
        "the answer is " * 30_000,
        "1" * 300_000,
        "1,111" * 60_000,
        "1 " * 150_000,
        "= " * 150_000,
        "=" * 300_000,
        "*" * 300_000,
        "**a" * 100_000,
        "#### " * 60_000,
        "####" + " " * 300_000,
        "\\frac{" * 50_000,
        "x" * 300_000 + "= 3",
        "answer: " + "3+" * 100_000,
        "answer: " + "x = " * 70_000,
        "$" * 300_000,
        "A : " * 70_000,
        "-" * 300_000,
        "3 dollars " * 30_000 + "\u00a2",
        r"\boxed{3" + " a" * 1900 + "}",
        r"\boxed{" + "x(" * 1900 + "= 3}",
        r"\boxed{" + "3*" * 1900 + "}",
        "a.\n" * 100_000,
        "answer:" + "\n" * 100_000,
        "answer:" + " " * 100_000,
        "answer is 3" + " " * 100_000 + "x",
        "$$" * 100_000,
        "\\(" * 100_000,
        "so " * 100_000,
        "1 + " * 100_000,
        "not " * 100_000,
        "is not the " * 30_000,
        "17, not 18, " * 30_000,
        "rather than " * 30_000,
        "instead of (" * 30_000,
        "not $" * 80_000,
        "1 or " * 80_000,
        "at least " * 40_000,
        "answer: " + "more than " * 300,
        "answer: " + "1 or " * 600,
        "answer: " + "x (" * 900,
        "answer is 3? " * 30_000,
        "1 000 " * 60_000,
        r"1\,000" * 50_000,
        "one hundred " * 30_000,
        "<" * 300_000,
        "</a" * 100_000,
        "<|" * 100_000,
        "\u00b2" * 300_000,
        "1\u00b2" * 150_000,
        r"0.\overline" * 30_000,
        "5_" * 100_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_texts_cost_no_time(text: str) -> None:
    begin = time.process_time()
    final_number(text)
    read_said(text, read_key("18"))
    read_said(text, read_key("x^2"))
    read_said(text, read_key("Paris"))
    assert time.process_time() - begin < 5  # What grows with the square of the length takes minutes.
