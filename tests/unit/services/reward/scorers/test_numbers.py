"""What is a number and nothing else, with its unit; exact, whatever its size."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.scorers.answers.numbers import read_number, read_ratio, same_number

NUMBERS: dict[str, int | Fraction] = {
    "18": 18, "$18.00": 18, "18 dollars": 18, "18%": 18, "**18**": 18, "18.": 18, "x = 18": 18, "= 18": 18,
    "x = 3 \\cdot 6 = 18": 18, "\\text{Total: } 18": 18, "18\\text{ cm}^2": 18, "-3": -3, "\u22123": -3, "-$3": -3,
    "negative 3": -3, "1/4": Fraction(1, 4), ".5": Fraction(1, 2), "1.8e3": 1800, "1.8 \\times 10^3": 1800,
    "\\dfrac34": Fraction(3, 4), "1 1/2": Fraction(3, 2),
    "1\\frac{1}{2} hours": Fraction(3, 2), "2\u215e": Fraction(23, 8),
    "1{,}800": 1800, "10\\,000": 10000, "10 000": 10000, "30^\\circ": 30, "USD 18": 18, "18 apples a day": 18,
    "18 km/h": 18, "18\u5143": 18,
    "about 18": 18, "(18)": 18, "0.\\overline{3}": Fraction(1, 3),
    "5\u00b2 = 25": 25, "9" * 1400: int("9" * 1400),
}  # fmt: skip
NONE = [
    "", "no number", "3/0", "1e999999", "9" * 5000, "3x", "18xy", "x + 2", "2\\sqrt{3}", "18 or 20", "18 and 20",
    "(1, 2)", "42\u4e07", "42\u5206\u4e4b\u4e00", "42 crore", "42 mod five", "42 below zero", "42 or",
    "42 \u0438\u043b\u0438",
    "x^2 = 4", "3:4", "2\\pi", "5 - 3", "18 (20)", "18 squared", "18 thirds", "2 dozen", "18 is wrong",
    "18. No wait, 19",
    "18, not 17", "5 feet 6 inches", "the 18th of May", "not 18", "41 = 42", "5!", "\\pm 5", "- 18x",
    "18 rather than 17",
]  # fmt: skip


@pytest.mark.parametrize(("piece", "number"), list(NUMBERS.items()), ids=lambda value: repr(value)[:30])
def test_a_number_is_read_in_every_spelling(piece: str, number: int | Fraction) -> None:
    found = read_number(piece)
    assert found is not None
    assert found.value == number


@pytest.mark.parametrize("piece", NONE, ids=lambda value: repr(value)[:30])
def test_text_that_is_not_exactly_a_number_does_not_parse(piece: str) -> None:
    assert read_number(piece) is None


@pytest.mark.parametrize(
    ("wanted", "said", "same"),
    [
        ("18", "18%", True), ("0.5", "50%", True), ("50%", "0.5", True), ("0.5", "0.5%", False), ("8", "800%", False),
        ("2000000", "2 million", True), ("2", "2 million", False), ("18", "18M", False),
        ("1/3", "0.333333", True), ("1/3", "0.33", False), ("-1/3", "0.333333", False), ("1/2", "0.5000001", False),
        ("1000000", "1000001", False), ("0.0000016", "0.000002", False), ("18", "18.0000001", False),
        # A unit of measure in the key is met, or converted exactly.
        ("5 km", "5000 m", True), ("5 km", "5 kilometers", True), ("5 km", "5 miles", False), ("5 km", "5", False),
        ("36 km/h", "10 m/s", True), ("60 mph", "60 miles per hour", True), ("12\\text{ cm}^2",
        "12 square centimeters", True),
        ("12 cm^2", "12 cm", False), ("5 m/s", r"5\,\mathrm{m\,s^{-1}}", True), ("5 m/s", r"5 \frac{m}{s}", True),
        ("1 L", "1000 cm\u00b3", True), ("2 hours", "120 minutes", True), ("1 inch",
        "2.54 cm", True),
        ("20^\\circ C", "20 degrees Celsius", True), ("20^\\circ C", "20^\\circ F", False), ("18", "18 km", True),
        # What is counted, money and degrees may be left away, but are not others.
        ("5 apples", "5", True), ("5 apples", "5 oranges", False), ("90^\\circ", "90", True), ("\\$18", "18", True),
    ],
)  # fmt: skip
def test_numbers_are_compared_with_their_units(wanted: str, said: str, same: bool) -> None:
    one, other = read_number(wanted), read_number(said)
    assert one is not None and other is not None
    assert same_number(one, other) is same


@given(st.fractions(min_value=0, max_denominator=999))
def test_a_fraction_is_read_in_every_spelling(value: Fraction) -> None:
    top, bottom = value.numerator, value.denominator
    texts = [f"{top}/{bottom}", rf"\frac{{{top}}}{{{bottom}}}", rf"\tfrac{{{top}}}{{{bottom}}} cups"]
    if top > bottom > 1:
        texts.append(f"{top // bottom} {top % bottom}/{bottom}")
    assert {found.value for text in texts if (found := read_number(text)) is not None} == {value}


def test_words_after_a_number_must_be_one_word_or_occur_in_the_question() -> None:
    assert read_number("18 chocolate chip cookies") is None
    assert read_number("18 chocolate chip cookies", "How many chocolate chip cookies are left?") is not None
    assert read_number("18 \u4e2a\u82f9\u679c", "\u6709\u591a\u5c11 \u4e2a\u82f9\u679c?") is not None
    assert read_number("18 squared", "What is 18 squared?") is None


def test_ratios_and_times_are_read_in_lowest_terms() -> None:
    found = [read_ratio(text) for text in ("3:4", "6 : 8", "3 to 4", "7:30 PM", "34")]
    assert [one and (one[0], one[1].noun) for one in found] == [
        ((3, 4), ""), ((3, 4), ""), ((3, 4), ""), ((7, 30), "PM"), None,
    ]  # fmt: skip
