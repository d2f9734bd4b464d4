"""The example's task as an environment of TRL and as a program: trained under kills."""

from pathlib import Path

import pytest

from tests.e2e.tools_example import EXAMPLE, ExampleRun, trained

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3000)]

FORMS = {
    "trl": (
        {"name": "trl:stock:Stock", "path": str(EXAMPLE / "trl"), "rewards": ["stock:right"]},
        b"headrace.services.environment.child.main",
    ),
    "program": (
        {
            "command": ["python", "agent.py"],
            "reward_command": ["python", "grade.py"],
            "path": str(EXAMPLE / "program"),
            "max_turn_tokens": 48,
        },
        b"agent.py",
    ),
}
"""The table `[environment]`, and a word of the command line of what plays."""


@pytest.mark.parametrize("form", FORMS)
def test_the_same_task_in_the_form_of_others_is_trained_under_kills(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, form: str
) -> None:
    table, word = FORMS[form]
    run = ExampleRun(tmp_path, trained(tmp_path_factory), table)
    run.begin()
    run.end_after_kills(word)
    run.check_episodes()
