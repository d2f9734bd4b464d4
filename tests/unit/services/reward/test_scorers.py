"""Scorers are found by name, and what is no scorer is refused with the way out."""

import subprocess
import sys

import pytest

from headrace.services.reward.scorers import BUILT_IN, Context, build_scorer
from headrace.wire.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "words"),
    [("exact_mach", "did you mean 'exact_match'"), ("nonsense", "or your own module:function")],
)
def test_an_unknown_scorer_is_refused_with_the_way_out(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_scorer(name, {}, Context(component=name))


def test_rules_and_math_need_neither_torch_nor_sympy_to_be_built() -> None:
    names = ["exact_match", "numeric", "boxed", "repetition", "math"]
    assert set(names) <= set(BUILT_IN)
    code = (
        "import sys; from headrace.services.reward.scorers import Context, build_scorer\n"
        f"for name in {names}: build_scorer(name, {{}}, Context(component=name))\n"
        "assert not {'torch', 'transformers', 'sympy', 'math_verify'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
