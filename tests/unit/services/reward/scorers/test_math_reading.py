"""What a look tells of a mathematical answer, and what it leaves to the verifier."""

import pytest

from headrace.services.reward.scorers.answers.formulas import as_latex, formula_in, is_balanced, is_words
from headrace.services.reward.scorers.math.reading import read_key, read_said

LOOKS: list[tuple[str, str, bool | None]] = [
    # The ways to say 18.
    ("18", "A: 18", True),
    ("18", "$18.00", True),
    ("18", "18 dollars", True),
    ("18", "18%", True),
    ("18", "**18**", True),
    ("18", "The answer is 18.", True),
    ("18", "The answer is 18!", True),
    ("18", "Final answer: 18 apples", True),
    ("18", "**Answer:** 18", True),
    ("18", "Answer: 18 km/h", True),
    ("18", "18.", True),
    ("18", "x = 18", True),
    ("18", "= 18", True),
    ("18", "$x = 18$", True),
    ("18", "\\[ x = 18 \\]", True),
    ("18", "so $3 \\cdot 6 = 18$ hours", True),
    ("18", "\\boxed{18}", True),
    ("18", "$\\boxed{18\\text{ dollars}}$", True),
    ("18", "\\boxed{\\$18.00}", True),
    ("18", "\\boxed{x = 18}", True),
    ("18", "#### 18", True),
    ("18", "#### 18\n", True),
    ("18", "eighteen dollars", True),
    ("18", "about 18", True),
    ("18", "1. Nine eggs.\n2. Two dollars each.\nThat makes 18 dollars.", True),
    ("18", "She earns 9 * 2 = $18 in 3 days.", True),
    ("18", "It is 20. No, wait: the answer is 18.", True),
    ("18", "\\boxed{20} is wrong, it is \\boxed{18}", True),
    ("18", "(18)", True),
    ("18", "18 cm\u00b2", True),
    # What is not 18.
    ("18", "", False),
    ("18", "I don't know", False),
    ("18", "81", False),
    ("18", "180", False),
    ("18", "1.8", False),
    ("18", "-18", False),
    ("18", "18,000", False),
    ("18", "The answer is not 18 but 20", False),
    ("18", "18 or 20", False),
    ("18", "\\boxed{18} is wrong, it is \\boxed{20}", False),
    ("18", "\\boxed{18, 20}", False),
    ("18", "\\boxed{18 or 20}", False),
    ("18", "\\boxed{20} % 18", False),
    ("18", "The answer is 20, not 18.", False),
    ("18", "18x", False),
    ("18", "#### 20\nor 18", False),
    # Other numbers.
    ("1800", "1,800", True),
    ("1,800", "1800.00", True),
    ("1800", "1.8e3", True),
    ("1800", "$1.8 \\times 10^3$", True),
    ("1000000", "1 million", True),
    ("0.5", ".5", True),
    ("0.5", "50%", True),
    ("50%", "0.5", True),
    ("50", "50\\%", True),
    ("5", "500%", False),
    ("-3", "\u22123", True),
    ("-3", "negative 3", True),
    ("-3", "3", False),
    ("0.75", "3/4", True),
    ("3/4", "0.75", True),
    ("3/4", "\\frac{3}{4}", True),
    ("\\frac{3}{4}", "\\boxed{\\dfrac{3}{4}}", True),
    ("\\frac{3}{4}", "\\boxed{\\frac{6}{8}}", True),
    ("1.5", "1 1/2", True),
    ("3/2", "1\\frac{1}{2} hours", True),
    ("2/3", "0.666667", True),
    ("2/3", "0.66", False),
    ("90", "90^\\circ", True),
    ("90^\\circ", "90 degrees", True),
    ("Work it out.\n#### 1,234", "1234", True),
    ("so it is $\\boxed{7}$", "7", True),
    # Words, options, and formulas that are spelled alike.
    ("even", "\\boxed{\\text{Even}}", True),
    ("even", "It is even, as both are.", True),
    ("even", "odd", False),
    ("Paris", "spair", False),
    ("\\text{Evelyn}", "The answer is Evelyn.", True),
    ("C", "(C)", True),
    ("C", "The answer is C. Paris", True),
    ("C", "\\boxed{\\text{(C)}}", True),
    ("2\\sqrt{3}", "$2 \\sqrt{3}$", True),
    ("2\\sqrt{3}", "\\boxed{2 \\sqrt{3}}", True),
    ("\\frac{\\pi}{4}", "\\boxed{\\dfrac{\\pi}{4}}", True),
    ("[0, 1)", "\\boxed{[0,1)}", True),
    ("\\left(1, 2\\right)", "\\boxed{(1,2)}", True),
    # What only the verifier can tell.
    ("2\\sqrt{3}", "\\boxed{\\sqrt{12}}", None),
    ("x^2+1", "The answer is 1+x^2, because of that.", None),
    ("18", "The answer is 18 + y", False),
    ("5", "\\boxed{5!}", False),
    ("11", "\\boxed{11_{2}}", False),
    ("[0, 1)", "\\boxed{[0,1]}", None),
    ("7", "10-3", False),
]


@pytest.mark.parametrize(("key", "completion", "equal"), LOOKS, ids=lambda value: repr(value)[:40])
def test_an_answer_is_read_as_a_person_reads_it(key: str, completion: str, equal: bool | None) -> None:
    assert read_said(completion, read_key(key)).equal is equal


@pytest.mark.parametrize("value", [18, 18.0, " 18 ", "$18$", "\\$18"])
def test_keys_come_as_numbers_and_as_text(value: object) -> None:
    assert read_said("18", read_key(value)).equal is True


@pytest.mark.parametrize(
    ("value", "words"),
    [("", "empty"), ("$$", "empty"), (None, "NoneType"), (["18"], "list"), (True, "bool"), ("\\frac{1", "braces")],
)
def test_a_key_that_nobody_can_read_is_an_error(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_key(value)


@pytest.mark.parametrize(
    ("line", "formula"),
    [
        ("so we get $2\\sqrt{3}$.", "2\\sqrt{3}"),
        ("Hence \\(a\\) is \\(b+1\\)", "b+1"),
        ("The result is x^2 + 1, since it is even.", "x^2 + 1"),
        ("1+x^2, because of that", "1+x^2"),
        ("it comes to 2*sqrt(3)", "2*sqrt(3)"),
        ("none at all", ""),
    ],
)
def test_the_formula_of_a_sentence_is_found(line: str, formula: str) -> None:
    assert formula_in(line) == formula


@pytest.mark.parametrize(
    ("typed", "latex"),
    [
        ("2\u221a3", "2\\sqrt{3}"),
        ("2*sqrt(3)", "2*\\sqrt{3}"),
        ("2pi", "2\\pi "),
        ("x\u00b2", "x^2"),
        ("x <= 3", "x \\le  3"),
        ("x**2", "x^2"),
        ("$x$", "x"),
        ("(-oo, 3]", "(-\\infty , 3]"),
        ("\\pi", "\\pi"),
    ],
)
def test_what_people_type_becomes_latex(typed: str, latex: str) -> None:
    assert as_latex(typed) == latex.strip()


def test_words_are_told_from_products_of_letters() -> None:
    assert all(map(is_words, ["Paris", "\\text{no}", "No", "two cats"]))
    assert not any(map(is_words, ["xy", "x", "sin x", "2 cats", "x + y", "\\pi"]))


def test_braces_count_unless_escaped() -> None:
    assert is_balanced("\\{1, 2\\}")
    assert is_balanced("\\{1")
    assert not is_balanced("{1")
    assert not is_balanced("}{")
