"""What a start makes of a taskset of `verifiers`: its rows, or why it cannot be played."""

import json
import os
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from headrace.services.environment.settings import EnvironmentTable
from headrace.services.environment.taskset import harness, write_rows
from headrace.services.environment.taskset.harness import HarnessChoice, ready_scripts
from headrace.services.environment.taskset.rows import taskset_rows
from headrace.wire.errors import ConfigError, DataError
from tests.integration.environment.taskset_stage import TASKSETS, taskset_stage
from tests.integration.environment.test_child import need_sandbox

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("sandbox")]


@pytest.fixture
def sandbox() -> None:
    need_sandbox()


async def test_a_harness_without_known_tokens_is_refused_by_name(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path, harness="codex") as it:
        with pytest.raises(ConfigError, match='"codex": it needs a container, or speaks no chat'):
            async with it.pool.child():
                pass


async def test_without_the_package_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(harness, "version", missing)
    with pytest.raises(ConfigError, match=r"verifiers:calc.*pip install 'headrace\[verifiers\]'"):
        await ready_scripts(HarnessChoice(name="null", taskset="calc", path=TASKSETS))


async def test_the_tasks_are_the_rows_of_a_run(tmp_path: Path) -> None:
    rows = await taskset_rows(EnvironmentTable(name="verifiers:calc", path=TASKSETS), 0)
    assert [(row["prompt"], row["answer"]) for row in rows] == [(f"What is {n} + 34?", n + 34) for n in range(12, 20)]
    endless = EnvironmentTable(name="verifiers:forks", path=TASKSETS, harness="forks")
    with pytest.raises(DataError, match=r"forks: ForksTaskset has no end: set data\.limit to the number of its tasks"):
        await taskset_rows(endless, 0)
    assert [row["kind"] for row in await taskset_rows(endless, 3)] == ["linear"] * 3


def test_the_rows_of_a_taskset_are_written_for_where_the_package_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = os.path.relpath(TASKSETS)
    assert write_rows.main(["calc", "--path", path]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows and all(row["prompt"] and "answer" in row for row in rows)
    assert write_rows.main(["calc", "--path", path, "--options", "[1]"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("--options [1]: not the fields of a taskset's config"), said.err
    assert write_rows.main(["absent", "--path", path]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("verifiers:absent: ModuleNotFoundError"), said.err
