"""What is seen of a formula before anybody works it out: its size, and that it differs."""

import time
from typing import Any

import pytest

sympy = pytest.importorskip("sympy")
pytest.importorskip("math_verify")

from headrace.services.reward.scorers.math.child import _read  # noqa: E402
from headrace.services.reward.scorers.math.probe import is_unworked, surely_differ  # noqa: E402
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
def test_numbers_that_nobody_works_out_are_seen_at_once(formula: str) -> None:
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
def test_answers_that_people_give_fit(formula: str) -> None:
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


def test_an_integral_is_still_to_be_worked_out() -> None:
    assert is_unworked(tree(r"\int_0^1 x dx"))
    assert is_unworked(tree(r"3 + \sum_{k=1}^{n} k"))
    assert not is_unworked(tree(r"\sqrt{2}"))
    assert sympy.Integer(3) == tree("3")
