"""What is seen of a formula before anybody works it out: its size, and that it differs."""

import time
from typing import Any

import pytest

sympy = pytest.importorskip("sympy")
pytest.importorskip("math_verify")

from headrace.services.reward.scorers.math.child import _read  # noqa: E402
from headrace.services.reward.scorers.math.forms import is_worked_out  # noqa: E402
from headrace.services.reward.scorers.math.probe import same_number, surely_differ  # noqa: E402
from headrace.services.reward.scorers.math.size import TooLargeError, check_size  # noqa: E402


def tree(formula: str) -> Any:
    found = _read(formula)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "formula",
    [
        r"9^{9^{9^{9}}}",
        r"10^{10^{10}}",
        r"7^{7^7}",
        r"1000000!",
        r"10^{100}!",
        r"1.5^{10^9}",
        r"\sum_{k=1}^{10000000} \frac{1}{k}",
        r"\prod_{k=1}^{1000000} k",
        r"(x+1)^{5000}",
        r"x + 9^{9^{9^{9}}}",
    ],
)
def test_infeasible_numbers_are_rejected_at_once(formula: str) -> None:
    expression = tree(formula)
    begin = time.process_time()
    with pytest.raises(TooLargeError):
        check_size(expression)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "formula",
    [
        r"2^{2005}",
        r"10^{-20}",
        r"20!",
        r"(-1)^{2023}",
        r"x^{100}",
        r"(x+y)^{20}",
        r"e^{1000}",
        r"3.5\times 10^{7}",
        r"\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{3}}}}}}}}}",
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"\{1,2\}",
        r"[0,1)",
        r"x=5",
        r"\sum_{k=1}^{100} k",
    ],
)
def test_typical_answers_are_within_the_size_limit(formula: str) -> None:
    check_size(tree(formula))


@pytest.mark.parametrize(
    ("gold", "said", "differ"),
    [
        ("x^2+1", "x^2-1", True),
        ("18", "x+1", True),
        (r"2\sqrt{3}", r"2\sqrt{5}", True),
        (r"\sin^2 x", r"1-\cos^2 x", False),
        ("x^2+2x+1", "(x+1)^2", False),
        (r"\sqrt{x^2}", "|x|", False),
        (r"\frac{1}{3}", "0.333333", False),
        ("3+4i", "3-4i", True),
        ("x=5", "x=6", False),
        (r"\{1,2\}", r"\{1,3\}", False),
        ("f(x)", "g(x)", False),
        (r"\frac{1}{0}", "1", False),
    ],
)
def test_points_tell_formulas_apart_and_never_call_equal_ones_different(gold: str, said: str, differ: bool) -> None:
    assert surely_differ(tree(gold), tree(said)) is differ


def test_integers_of_any_size_compare_exactly_and_reals_by_their_precision() -> None:
    pairs = [
        ("2^{3000}", str(2**3000), True),
        ("2^{3000}", str(2**3000 + 1), False),
        ("100!", r"99!\cdot 100", True),
        ("10^{20}+1", "10^{20}", False),
        ("2^{1000000}", "2^{1000001}", False),
        (r"\sqrt{2}", "1.41421356", True),
        (r"\sqrt{2}", "1.4142", False),
        (r"\sqrt{2}\cdot 10^{-8}", r"1.5\cdot 10^{-8}", False),
    ]
    assert [same_number(tree(one), tree(other)) for one, other, _ in pairs] == [same for *_, same in pairs]
    assert same_number(tree("x"), tree("2")) is None


UNEVALUATED = [
    (r"\frac{\pi}{6}", r"\arcsin\frac12"), (r"\begin{pmatrix}2\\4\end{pmatrix}", r"2\begin{pmatrix}1\\2\end{pmatrix}"),
    ("x^2+3x+2", "(x+1)(x+2)"), ("(x+1)(x+2)", "x^2+3x+2"), ("(x+1)^2", "x^2+2x+1"), ("x^3+x^2", "x^2(x+1)"),
    ("x^2(x+1)", "x^3+x^2"), ("x^2+1", r"x\cdot x+1"), ("x^2+1", "(x+1)^2-2x"), ("x^2+1", "x^2+2-1"), ("2x+1", "x+x+1"),
    ("2x+1", "2(x-1)+3"), ("10-4n", "-10-4(n-5)"), ("x+1", r"\frac{x^2-1}{x-1}"), (r"2\pi", r"\frac{4\pi}{2}"),
    (r"6\pi", r"2\cdot 3\pi"), (r"9\pi", r"\pi\cdot 3^2"), (r"\sqrt{6}", r"\sqrt{2}\cdot\sqrt{3}"),
    (r"2\sqrt{3}", r"\sqrt{4}\sqrt{3}"), (r"3+2\sqrt{2}", r"(1+\sqrt{2})^2"), (r"1+3\sqrt{2}", r"3\sqrt2+2-1"),
    (r"\sqrt2+1", r"\frac{1}{\sqrt2-1}"), (r"\sin^2 x", r"1-\cos^2 x"), ("e^2", r"e\cdot e"),
    ("[1,2]", r"[0,2]\cap[1,3]"),
    ("(1,2)", "(3-2,1+1)"), ("y=2x+1", "y=2x+3-2"), ("6p-42", "6(p-7)+0"), ("x+1", r"1\cdot(x+1)"),
    ("x+1", r"\frac{x+1}{1}"),
    ("x+1", "-(-(x+1))"), ("2", r"\int_0^1 4x dx"), ("2", r"\sum_{k=1}^{2} 1"), ("2", r"\lim_{x\to 0} (x+2)"),
]  # fmt: skip
WORKED_OUT = [
    (r"1+3\sqrt{2}", r"3\sqrt2+1"), (r"1+3\sqrt{2}", r"\sqrt{18}+1"), (r"2\sqrt{3}", r"\sqrt{12}"), ("a_{n-1}+1",
    "1+a_{n-1}"),
    (r"\frac{\sqrt2}{2}", r"\frac{1}{\sqrt2}"), (r"\frac{1+\sqrt5}{2}", r"\frac12(1+\sqrt5)"),
    (r"6+6\sqrt3", r"6(1+\sqrt3)"),
    (r"\frac{1+\sqrt5}{2}", r"\frac12+\frac{\sqrt5}{2}"), (r"\frac{\pi}{4}", r"\pi/4"),
    (r"\frac{\pi}{4}", r"\frac{2\pi}{8}"),
    ("2x+6", "2(x+3)"), (r"\frac14 n(n+1)", r"\frac{n(n+1)}{4}"), ("(x+1)^2", "(x+1)(x+1)"), (r"\frac{1}{x^2}",
    "x^{-2}"),
    (r"\frac34 x^{-1/4}", r"\frac{3}{4\sqrt[4]{x}}"), ("3+4i", "4i+3"), ("y=2x+1", "2x+1"), (r"\pm 5", "5, -5"),
    (r"(-\infty,1)\cup(1,\infty)", r"\mathbb{R}\setminus\{1\}"), (r"(-\infty,3]", r"x \le 3"), ("2^{10}", "1024"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "said"), UNEVALUATED)
def test_the_question_written_again_is_not_worked_out(gold: str, said: str) -> None:
    assert not is_worked_out(tree(said), tree(gold))
    assert is_worked_out(tree(gold), tree(gold))


@pytest.mark.parametrize(("gold", "said"), WORKED_OUT)
def test_other_closed_forms_are_worked_out(gold: str, said: str) -> None:
    assert is_worked_out(tree(said), tree(gold))
