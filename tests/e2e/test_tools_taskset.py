"""The example's task as a taskset of `verifiers`, whose rows are the run's: trained under kills."""

from pathlib import Path

import pytest

from tests.e2e.tools_example import EXAMPLE, ExampleRun, trained

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3000)]


def test_the_same_task_as_a_taskset_is_trained_under_kills(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    rows = ("--data.path", "", "--data.environment", str(EXAMPLE / "verifiers" / "stock"), "--data.limit", "60")
    run = ExampleRun(tmp_path, trained(tmp_path_factory), {"path": None, "slots": 4, "start_s": 200}, rows)
    run.begin()
    run.end_after_kills(b"headrace.services.environment.taskset.host")
    run.check_episodes()
