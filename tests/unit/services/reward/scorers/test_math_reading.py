"""What is decided without a verifier: numbers, options, words, what is left to be worked out, what the prompt has."""

import pytest

from headrace.services.reward.scorers.answers.notation import as_latex
from headrace.services.reward.scorers.math.reading import is_balanced, is_words, read_key, read_said

LOOKS: list[tuple[str, str, bool | None, str]] = [
    ("18", "A: 18", True, ""),
    ("18", "\\boxed{18\\text{ dollars}}", True, ""),
    ("18", "It is 20.\nThe answer is 18.", True, ""),
    ("18", "", False, "no_answer"),
    ("18", "I don't know", False, "no_answer"),
    ("18", "The answer is not 18 but 20", False, "no_answer"),
    ("18", "The answer is 18, not 17.", False, "no_answer"),
    ("18", "18 or 20", False, "unevaluated"),
    ("18", "\\boxed{18, 20}", False, "unevaluated"),
    ("18", "18 is wrong", False, "no_answer"),
    ("18", "The answer is 18. No wait, 19", False, "no_answer"),
    ("18", "She has 18 eggs.", False, "no_answer"),
    ("18", "17+1", False, "unevaluated"),
    ("1024", "\\boxed{2^{10}}", False, "unevaluated"),
    ("24", "\\boxed{\\frac{48}{2}}", False, "unevaluated"),
    ("3/4", "\\boxed{\\frac{6}{8}}", True, ""),
    ("48/2", "\\boxed{48/2}", True, ""),
    ("Work it out.\n#### 1,234", "1234", True, ""),
    ("<answer>7</answer>", "7", True, ""),
    # Words and options.
    ("even", "\\boxed{\\text{Even}}", True, ""),
    ("even", "odd", False, ""),
    ("no", "The answer is no, yes", False, "no_answer"),
    ("\\text{Evelyn}", "The answer is Evelyn.", True, ""),
    ("C", "(C)", True, ""),
    ("C", "**C**", True, ""),
    ("C", "The answer is C. Paris", True, ""),
    ("C", "The correct option is (C) 12", True, ""),
    ("C", "\\boxed{\\text{(B)}}", False, ""),
    ("A", "\\boxed{A: is B}", False, "no_answer"),
    ("B", "\\boxed{A: is B}", False, "no_answer"),
    ("C", "The answer is C or D", False, "no_answer"),
    ("C", "C. or D.", False, "no_answer"),
    ("A", "(A) or (b)", False, "no_answer"),
    ("C", "C. A cat", True, ""),
    ("C", "C, Paris", True, ""),
    # Ratios, bases, notations for one thing.
    ("3:4", "3 to 4", True, ""),
    ("3:4", "\\boxed{\\frac{3}{4}}", True, ""),
    ("3:4", "4:3", False, ""),
    ("10:30 AM", "10:30 PM", False, ""),
    ("3:4", "3:4 apples", True, ""),
    ("2516_8", "\\boxed{2516_{8}}", True, ""),
    ("2516_8", "\\boxed{2516_7}", False, ""),
    ("\\emptyset", "\\boxed{\\varnothing}", True, ""),
    ("no solution", "\\boxed{\\emptyset}", True, ""),
    ("(0,1)", "\\boxed{]0,1[}", True, ""),
    ("[0,1)", "\\boxed{[0,1[}", True, ""),
    ("(0,\\sqrt{2})", "]0,\\sqrt{2}[", True, ""),
    ("(0,1)", "x \\in (0,1)", True, ""),
    ("31/2", "3 1/2", False, ""),
    ("2\\sqrt{2}", "2\\sqrt{2} inches", None, ""),
    # The verifier's.
    ("2\\sqrt{3}", "\\boxed{\\sqrt{12}}", None, ""),
    ("6\\pi\\text{ cm}^2", "\\boxed{6\\pi\\text{ cm}}", False, ""),
    ("(1,2)", "\\boxed{1,2}", False, ""),
    ("1,2", "\\boxed{(1,2)}", False, ""),
]


@pytest.mark.parametrize(("key", "completion", "equal", "refusal"), LOOKS, ids=lambda value: repr(value)[:40])
def test_simple_answers_are_decided_without_a_verifier(
    key: str, completion: str, equal: bool | None, refusal: str
) -> None:
    said = read_said(completion, read_key(key))
    assert (said.equal, said.refusal) == (equal, refusal)


@pytest.mark.parametrize(
    ("prompt", "key", "completion"),
    [
        ("What is 17+25?", "42", r"\boxed{17 + 25}"),
        ("How many are $\\binom{8}{4}$?", "70", r"\boxed{\binom84}"),
        ("Simplify \\(\\sqrt{18}+1\\).", r"1+3\sqrt{2}", r"\boxed{1+\sqrt{18}}"),
        ("Simplify sqrt(18) + 1.", r"1+3\sqrt{2}", r"1 + \sqrt{18}"),
        ("Factor $x^2+3x+2$.", "(x+1)(x+2)", r"\boxed{3x+2+x^2}"),
        ("Expand $2(x+3)$.", "2x+6", r"\boxed{y = (3+x)\cdot 2}"),
        ("Simplify $\\frac{2\\pi}{8}$.", r"\frac{\pi}{4}", r"\boxed{\dfrac{2\pi}{8}}"),
        ("Solve $x+5y=3$ for x.", "x=3-5y", r"\boxed{x + 5y = 3}"),
    ],
)
def test_restating_a_formula_of_the_prompt_is_wrong_in_any_order(prompt: str, key: str, completion: str) -> None:
    said = read_said(completion, read_key(key), prompt)
    assert (said.equal, said.refusal) == (False, "restated")


@pytest.mark.parametrize(
    ("prompt", "key", "completion"),
    [
        ("Which is larger, 2/3 or 6/8?", "3/4", r"\boxed{6/8}"),
        ("Which is larger, $2\\sqrt3$ or $3\\sqrt2$?", r"3\sqrt2", r"\boxed{3 \sqrt{2}}"),
        ("Which is irreducible, $x^2+1$ or $x^2-1$?", "1+x^2", r"\boxed{x^2+1}"),
        ("Divide $2x+15$ by it.", "1+x", r"\boxed{x+1}"),
        ("Which interval is it, $[0,1)$ or $(0,1]$?", "0\\le x<1", r"\boxed{[0,1)}"),
    ],
)
def test_an_answer_chosen_from_options_in_the_prompt_is_accepted(prompt: str, key: str, completion: str) -> None:
    said = read_said(completion, read_key(key), prompt)
    assert (said.equal is not False, said.refusal) == (True, "")


@pytest.mark.parametrize(
    ("value", "words"),
    [("", "empty"), ("$$", "empty"), (None, "NoneType"), (["18"], "list"), (True, "bool"), ("\\frac{1", "braces")],
)
def test_an_unreadable_answer_key_is_an_error(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_key(value)


def test_plain_text_math_becomes_latex() -> None:
    typed = ["2\u221a3", "2*sqrt(3)", "2pi", "x\u00b2", "x <= 3", "x**2", "$x$", "(-oo, 3]", "x=1 or x=2"]
    latex = ["2\\sqrt{3}", "2*\\sqrt{3}", "2\\pi", "x^2", "x \\le  3", "x^2", "x", "(-\\infty , 3]", "x=1 , x=2"]
    assert [as_latex(one) for one in typed] == latex


def test_words_and_products_of_letters_are_told_apart() -> None:
    assert all(map(is_words, ["Paris", "\\text{no}", "No", "two cats"]))
    assert not any(map(is_words, ["xy", "x", "sin x", "2 cats", "x + y", "\\pi"]))


def test_braces_count_unless_escaped() -> None:
    assert [is_balanced(text) for text in ("\\{1, 2\\}", "\\{1", "{1", "}{")] == [True, True, False, False]
