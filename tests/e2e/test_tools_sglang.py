"""The example's task where two real SGLang servers sample the turns between the tools."""

from pathlib import Path

import pytest

from tests.e2e.tools_example import EXAMPLE, ExampleRun, trained
from tests.sglang import sglang_venv

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.sglang, pytest.mark.timeout(3600)]


def test_two_sglang_servers_sample_the_turns_between_the_tools(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    environment = {"name": "stock:Stock", "path": str(EXAMPLE / "stock")}
    run = ExampleRun(tmp_path, trained(tmp_path_factory), environment)
    engine = ("--rollout.engine", "sglang", "--rollout.sglang.venv", str(sglang_venv()), "--model.dtype", "float32")
    try:
        run.begin(*engine, "--rollout.replicas", "2")
        run.wait_until(lambda: run.steps() >= 5, "the last step", 800)
        line = run.finish()
    finally:
        run.close()
    run.check_episodes()
    assert set(line["versions_committed"]) == {"rollout-0", "rollout-1"}
