r"""What is worked out, and what is the question written again."""

import pytest

from headrace.services.reward.scorers.math.forms import operators, read_formula, same_form
from headrace.services.reward.scorers.math.prompt import is_restated
from headrace.services.reward.scorers.math.reading import read_key, read_said

UNEVALUATED: list[tuple[str, str]] = [
    # Where the row's answer is a number.
    ("42", r"\boxed{17+25}"),
    ("42", "The answer is 17+25."),
    ("97406784", r"\boxed{123456\times 789}"),
    ("18", "#### (16-3-4)*2"),
    ("72", "#### 48+48/2"),
    ("10", "#### 12/60*50"),
    ("70", r"\boxed{\binom{8}{4}}"),
    ("120", r"\boxed{5!}"),
    ("6", r"\boxed{\gcd(12,18)}"),
    ("3", r"\boxed{\log_2 8}"),
    ("1/2", r"\boxed{\sin\frac{\pi}{6}}"),
    ("2", r"\boxed{\lfloor 2.7\rfloor}"),
    ("7", r"\boxed{\max(3,7)}"),
    ("5", r"\boxed{|3-8|}"),
    ("5", r"\boxed{\sqrt{25}}"),
    ("-2", r"\boxed{\det\begin{pmatrix}1&2\\3&4\end{pmatrix}}"),
    ("7/12", r"\boxed{\frac13+\frac14}"),
    ("0", r"\boxed{x-x}"),
    ("1", r"\boxed{\sin^2x+\cos^2x}"),
    ("24", r"\boxed{48/2}"),
    ("24", r"\boxed{\frac{48}{2}}"),
    ("24", "#### 48/2 clips"),
    ("24", "The answer is $48/2$."),
    ("24", r"\boxed{\frac{48}{2}\text{ clips}}"),
    ("18", r"\boxed{18/1}"),
    ("3", r"\boxed{1 4/2}"),
    ("0.75", r"\boxed{1.5/2}"),
    ("42", r"\boxed{x = 17 + 25}"),
    ("42", r"\boxed{84\div 2}"),
    ("42", r"\boxed{(17+25)_{10}}"),
    ("42", r"\boxed{{84 \over 2}}"),
    ("42", r"\boxed{42^1}"),
    ("42", r"\boxed{\text{17}+25}"),
    ("42", r"\boxed{\text{17+25}}"),
    ("42", r"\boxed{6(7)}"),
    ("42", r"\boxed{{6}\cdot{7}}"),
    ("42", r"\boxed{17 \mathbin{+} 25}"),
    ("42", r"\boxed{17 \pm 25}"),
    ("1000000", r"\boxed{10^{6}}"),
    ("4", "2\u00b2"),
    ("8", "#### 2\u00b3"),
    ("1.414214", r"\boxed{\sqrt{2}}"),
    ("6.283185", r"\boxed{2\pi}"),
    ("6", r"the answer is $2\cdot 3$"),
    ("7", "10-3"),
    ("18", "answer = 3 * 6"),
    ("17", "The answer is 18 - 1"),
    ("1", r"\boxed{\int_0^1 2x dx}"),
    ("5", r"\boxed{\sum_{k=1}^{1} 5}"),
    ("2", r"\boxed{17 \bmod 5}"),
    ("9", "9**9**9**9"),
    # Where it is another closed form.
    (r"\frac{\pi}{6}", r"\boxed{\arcsin\frac12}"),
    (r"\begin{pmatrix}19&22\\43&50\end{pmatrix}", r"\boxed{\begin{pmatrix}1&2\\3&4\end{pmatrix}"
     r"\begin{pmatrix}5&6\\7&8\end{pmatrix}}"),
    (r"\begin{pmatrix}2\\4\end{pmatrix}", r"\boxed{2\begin{pmatrix}1\\2\end{pmatrix}}"),
    ("x^2+3x+2", r"\boxed{(x+1)(x+2)}"),
    ("(x+1)(x+2)", r"\boxed{x^2+3x+2}"),
    ("x^2+2x+1", r"\boxed{(x+1)^2}"),
    ("(x+1)^2", r"\boxed{x^2+2x+1}"),
    ("x^3+x^2", r"\boxed{x^2(x+1)}"),
    ("x^2(x+1)", r"\boxed{x^3+x^2}"),
    ("x^2+1", r"\boxed{x\cdot x+1}"),
    ("x^2+1", r"\boxed{(x+1)^2-2x}"),
    ("x^2+1", r"\boxed{x^2+2-1}"),
    ("2x+1", r"\boxed{x+x+1}"),
    ("2x+1", r"\boxed{2(x-1)+3}"),
    ("10-4n", r"\boxed{-10-4(n-5)}"),
    ("x+1", r"\boxed{\frac{x^2-1}{x-1}}"),
    ("2\\pi", r"\boxed{\frac{4\pi}{2}}"),
    ("6\\pi", r"\boxed{2\cdot 3\pi}"),
    ("9\\pi", r"\boxed{\pi\cdot 3^2}"),
    (r"\sqrt{6}", r"\boxed{\sqrt{2}\cdot\sqrt{3}}"),
    (r"2\sqrt{3}", r"\boxed{\sqrt{4}\sqrt{3}}"),
    (r"3+2\sqrt{2}", r"\boxed{(1+\sqrt{2})^2}"),
    (r"1+3\sqrt{2}", r"\boxed{3\sqrt2+2-1}"),
    (r"\sqrt2+1", r"\boxed{\frac{1}{\sqrt2-1}}"),
    (r"\sin^2 x", r"\boxed{1-\cos^2 x}"),
    ("e^2", r"\boxed{e\cdot e}"),
    ("[1,2]", r"\boxed{[0,2]\cap[1,3]}"),
    (r"\{1,2,3\}", r"\boxed{\{1,2\}\cup\{2,3\}}"),
    ("(1,2)", r"\boxed{(3-2,1+1)}"),
    ("y=2x+1", r"\boxed{y=2x+3-2}"),
    # An operation that changes nothing hides nothing.
    ("6p-42", r"\boxed{6(p-7)+0}"),
    ("x+1", r"\boxed{1\cdot(x+1)}"),
    ("x+1", r"\boxed{\frac{x+1}{1}}"),
    ("x+1", r"\boxed{(x+1)^1}"),
    ("x+1", r"\boxed{-(-(x+1))}"),
]  # fmt: skip
WORKED_OUT: list[tuple[str, str, bool | None]] = [
    # Numbers, in the forms that people write; None is for the verifier.
    ("7/2", r"\boxed{\frac{7}{2}}", True),
    ("7/2", r"\boxed{\dfrac72}", True),
    ("7/2", r"\boxed{3.5}", True),
    ("7/2", r"\boxed{3\frac{1}{2}}", True),
    ("7/2", r"\boxed{x=\frac72}", True),
    ("-1/2", r"\boxed{-\frac{1}{2}}", True),
    ("3/4", r"\boxed{\frac{6}{8}}", True),
    ("0.5", r"\boxed{50\%}", True),
    ("1000", r"\boxed{1{,}000}", True),
    ("1200", r"\boxed{1.2\times 10^3}", True),
    ("1200", "1.2e3", True),
    ("0.0012", r"\boxed{1.2 \cdot 10^{-3}}", True),
    ("5", r"\boxed{\$5.00}", True),
    ("18", r"\boxed{18\mathrm{~cm}^2}", True),
    ("18", r"\boxed{18 = 2 \cdot 9}", True),
    ("24", r"\boxed{24 = 48/2}", True),
    ("42", r"\boxed{7 = 17+25}", False),
    ("42", r"\boxed{17 + 25 = 42}", True),
    ("6", "12 meters would mean the 12/2 = 6th platform", True),
    ("18", r"\boxed{x\in\{18\}}", None),
    ("42", "\\boxed{17\uff0b25}", False),
    ("42", r"\boxed{17 {+} 25}", False),
    ("42", r"\boxed{--42}", False),
    ("18", r"\boxed{x+y=18}", None),
    # The row's own answer, whatever it is.
    ("48/2", r"\boxed{48/2}", True),
    ("48/2", r"\boxed{24}", True),
    ("10^{6}", r"\boxed{10^{6}}", True),
    ("10^{6}", r"\boxed{10^6}", None),
    ("2^{10}", "1024", None),
    (r"\binom{8}{4}", r"\boxed{\binom{8}{4}}", True),
    ("17+25", "#### 17+25", True),
    (r"x \neq 4", r"\boxed{x \neq 4}", True),
    # Other closed forms, in other orders and spellings.
    (r"1+3\sqrt{2}", r"\boxed{3\sqrt2+1}", None),
    (r"1+3\sqrt{2}", r"\boxed{\sqrt{18}+1}", None),
    (r"2\sqrt{3}", r"\boxed{\sqrt{12}}", None),
    (r"2\sqrt{3}", "It is 2*sqrt(3)", None),
    (r"2\sqrt{3}", 'The answer is "2\\sqrt{3}".', None),
    ("a_{n-1}+1", r"\boxed{1+a_{n-1}}", None),
    (r"\sqrt{3}/2", r"\boxed{\frac{\sqrt{3}}{2}}", None),
    (r"\frac{\sqrt2}{2}", r"\boxed{\frac{1}{\sqrt2}}", None),
    (r"\frac{1+\sqrt5}{2}", r"\boxed{\frac12(1+\sqrt5)}", None),
    (r"\frac{1+\sqrt5}{2}", r"\boxed{\frac12+\frac{\sqrt5}{2}}", None),
    (r"6+6\sqrt3", r"\boxed{6(1+\sqrt3)}", None),
    (r"\frac{\pi}{4}", r"\boxed{\pi/4}", None),
    (r"\frac{\pi}{4}", r"\boxed{0.25\pi}", None),
    (r"\frac{\pi}{4}", r"\boxed{\frac{2\pi}{8}}", None),
    (r"6\pi", r"\boxed{6\pi\text{ cm}^2}", None),
    (r"10\sqrt[4]{4}", "The answer is 10*4**(1/4).", None),
    ("x^2+1", "The answer is 1+x^2, because of that.", None),
    ("2x+6", r"\boxed{2(x+3)}", None),
    (r"\frac14 n(n+1)", r"\boxed{\frac{n(n+1)}{4}}", None),
    ("(x+1)(x+2)", r"\boxed{(x+2)(x+1)}", None),
    ("(x+1)^2", r"\boxed{(x+1)(x+1)}", None),
    (r"\frac{1}{x^2}", r"\boxed{x^{-2}}", None),
    (r"\frac34 x^{-1/4}", r"\boxed{\frac{3}{4\sqrt[4]{x}}}", None),
    (r"\ln 2", r"\boxed{\log 2}", None),
    ("e^2", r"\boxed{\exp(2)}", None),
    ("3+4i", r"\boxed{4i+3}", None),
    ("y=2x+1", r"\boxed{2x+1}", None),
    (r"\pm 5", r"\boxed{5, -5}", None),
    (r"\{1+\sqrt2,1-\sqrt2\}", r"\boxed{1\pm\sqrt2}", None),
    (r"(-\infty,1)\cup(1,\infty)", r"\boxed{\mathbb{R}\setminus\{1\}}", None),
    (r"(-\infty,3]", "x \u2264 3", None),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}1 \\ 2\end{pmatrix}}", None),
    (r"\sum_{n=0}^{\infty}(n+1)x^n", r"\boxed{\sum_{n=0}^{\infty} x^{n}\left(n+1\right)}", None),
    (r"1.5\times 10^{4}x", r"\boxed{1.5\cdot 10^4 x}", None),
]


@pytest.mark.parametrize(("key", "completion"), UNEVALUATED, ids=lambda value: repr(value)[:50])
def test_the_question_written_again_is_no_answer_whatever_its_value(key: str, completion: str) -> None:
    said = read_said(completion, read_key(key))
    assert (said.equal, said.refusal) == (False, "unevaluated")


@pytest.mark.parametrize(("key", "completion", "equal"), WORKED_OUT, ids=lambda value: repr(value)[:50])
def test_what_is_worked_out_is_judged_by_its_value(key: str, completion: str, equal: bool | None) -> None:
    said = read_said(completion, read_key(key))
    assert (said.equal, said.refusal) == (equal, "")


RESTATED: list[tuple[str, str, str]] = [
    ("What is 17+25?", "42", r"\boxed{17 + 25}"),
    ("17+25=", "42", "17+25"),
    ("How many are $\\binom{8}{4}$?", "70", r"\boxed{\binom84}"),
    ("Simplify $\\sqrt{12}$.", r"2\sqrt{3}", r"\boxed{\sqrt{12}}"),
    ("Simplify \\(\\sqrt{18}+1\\).", r"1+3\sqrt{2}", r"\boxed{1+\sqrt{18}}"),
    ("Simplify sqrt(18) + 1.", r"1+3\sqrt{2}", r"1 + \sqrt{18}"),
    ("Expand $(x+1)(x+2)$.", "x^2+3x+2", r"\boxed{(x+2)(x+1)}"),
    ("Factor $x^2+3x+2$.", "(x+1)(x+2)", r"\boxed{3x+2+x^2}"),
    ("Expand $2(x+3)$.", "2x+6", r"\boxed{(3+x)\cdot 2}"),
    ("Expand $2(x+3)$.", "2x+6", r"\boxed{y = 2(x+3)}"),
    ("Simplify $\\frac{2\\pi}{8}$.", r"\frac{\pi}{4}", r"\boxed{\dfrac{2\pi}{8}}"),
    ("Solve $x+5y=3$ for x.", "x=3-5y", r"\boxed{x + 5y = 3}"),
]


@pytest.mark.parametrize(("prompt", "key", "completion"), RESTATED, ids=lambda value: repr(value)[:50])
def test_a_formula_of_the_prompt_is_no_answer_in_whatever_order(prompt: str, key: str, completion: str) -> None:
    said = read_said(completion, read_key(key), prompt)
    assert (said.equal, said.refusal) == (False, "restated")


@pytest.mark.parametrize(
    ("prompt", "key", "completion"),
    [
        ("Which is larger, 2/3 or 3/4?", "3/4", "3/4"),
        ("Which is larger, 2/3 or 6/8?", "3/4", r"\boxed{6/8}"),
        ("Which is larger, $2\\sqrt3$ or $3\\sqrt2$?", r"3\sqrt2", r"\boxed{3 \sqrt{2}}"),
        ("Which is irreducible, $x^2+1$ or $x^2-1$?", "1+x^2", r"\boxed{x^2+1}"),
        ("Which is larger, $2^{10}$ or $10^2$?", "2^{10}", r"\boxed{2^{10}}"),
        ("Is it 1.5e3 or 2e3?", "1500", "1.5e3"),
        ("The circle has the radius $2\\pi$ or $\\pi$.", r"2\pi", r"\boxed{2\pi}"),
        ("Divide $2x+15$ by it.", "1+x", r"\boxed{x+1}"),
        ("Let $b=1+a_{n+1}$.", "1+1a_{n-1}", r"\boxed{a_{n-1}+1}"),
        ("Which interval is it, $[0,1)$ or $(0,1]$?", "0\\le x<1", r"\boxed{[0,1)}"),
    ],
)
def test_an_answer_that_the_prompt_gives_to_choose_from_is_right(prompt: str, key: str, completion: str) -> None:
    said = read_said(completion, read_key(key), prompt)
    assert said.refusal == ""
    assert said.equal is not False


@pytest.mark.parametrize(
    ("formula", "found"),
    [
        ("18", set()),
        (r"\frac{7}{2}", {"fraction"}),
        (r"\frac{8}{2}", {"exact quotient"}),
        ("2x", {"product"}),
        (r"2\frac13", set()),
        (r"2\frac13 x", {"product"}),
        (r"\frac{x}{2}", {"division"}),
        (r"\frac{x+1}{2}", {"sum", "quotient of a sum"}),
        ("1.5*10^{-4}", set()),
        (r"|x|", {"abs"}),
        (r"\{x \mid x>0\}", {"product"}),
        ("n!", {"factorial"}),
        (r"x^{1/2}", {"root", "fraction"}),
        (r"5\text{ km}/\text{h}", set()),
        (r"90^\circ", set()),
        ("f'(x)", {"product"}),
        (r"\left.\frac12\right.", {"fraction"}),
    ],
)
def test_operators_are_those_of_the_text(formula: str, found: set[str]) -> None:
    tree = read_formula(formula)
    assert tree is not None
    assert operators(tree) == found


def test_two_spellings_are_one_form_in_any_order() -> None:
    pairs = [
        ("3-2\\sqrt2", "-2\\sqrt{2}+3"),
        ("\\frac{\\pi}{6}", "\\pi/6"),
        ("x=\\dfrac12 y", "\\frac{1}{2}y"),
        ("10^6", "10^{6}"),
    ]
    for one, other in pairs:
        first, second = read_formula(one), read_formula(other)
        assert first is not None and second is not None
        assert same_form(first, second), (one, other)
    first, second = read_formula("(x+1)(x+2)"), read_formula("x^2+3x+2")
    assert first is not None and second is not None and not same_form(first, second)


ODD = [
    "(" * 600 + "x" + ")" * 600,
    "\\sqrt" * 400 + "2",
    "\\sin" * 400 + "x",
    "\\frac" * 300 + "1",
    "{" * 900,
    "^" * 900,
    "-" * 900 + "x",
    "|" * 900,
    "x^" * 700 + "2",
    "1/" * 700 + "2",
    "\\begin{pmatrix}" * 90,
    "+*/" * 400,
    "1+" * 700 + "1",
    "",
    "$$",
    ")",
]


@pytest.mark.parametrize("formula", ODD, ids=lambda value: value[:12])
def test_no_formula_is_too_odd_to_be_read_or_refused(formula: str) -> None:
    read_formula(formula)
    is_restated(formula, f"What is ${formula}$? {formula}")
    read_said(rf"\boxed{{{formula}}}", read_key("x^2+1"), formula)
    read_said(rf"\boxed{{{formula}}}", read_key("18"), formula)
