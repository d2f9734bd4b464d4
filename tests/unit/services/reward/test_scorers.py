"""Scorers are found by name, and what is no scorer is refused with the way out."""

import subprocess
import sys

import pytest

from headrace.services.reward.scorer import Context
from headrace.services.reward.scorers.registry import build_scorer
from headrace.wire.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "words"),
    [("exact_mach", "did you mean 'exact_match'"), ("nonsense", "or your own module:function")],
)
def test_an_unknown_scorer_is_rejected_with_a_fix(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_scorer(name, {}, Context(component=name))


def test_a_worker_imports_only_the_libraries_of_its_jobs() -> None:
    """There are as many as `reward.workers`, and each is started anew after a hang."""
    code = (
        "import sys, headrace.services.reward.workers.child, headrace.services.reward.scorers.json.child\n"
        "from headrace.services.reward.user.child import plain, trl, verl\n"
        "found = {'numpy', 'pydantic', 'structlog', 'prometheus_client', 'redis', 'grpc'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
