"""What a start makes of a taskset of `verifiers`: its rows, or why it cannot be played."""

import json
import os
import re
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from headrace.services.environment.settings import EnvironmentTable
from headrace.services.environment.taskset import harness, write_rows
from headrace.services.environment.taskset.harness import FOLDER, HarnessChoice, ready_scripts
from headrace.services.environment.taskset.rows import taskset_rows
from headrace.wire.contracts import FinishReason
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.stage import played
from tests.integration.environment.taskset_stage import TASKSETS, taskset_stage
from tests.integration.environment.test_child import need_sandbox
from tests.integration.environment.test_episode import play

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("sandbox")]


@pytest.fixture
def sandbox() -> None:
    need_sandbox()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        pytest.param(
            "silent",
            "a server of tools ended with status 0 before it served; its module must run it",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "stuck", "a server of tools did not come up: it has done nothing for 10 s", marks=pytest.mark.long
        ),
        pytest.param(
            "pair",
            "verifiers:pair: it comes with the environment Pair, which may let several agents play",
            marks=pytest.mark.long,
        ),
        ("absent", "verifiers:absent: ModuleNotFoundError"),
    ],
)
async def test_a_taskset_that_cannot_be_played_is_refused_at_the_start(tmp_path: Path, name: str, wanted: str) -> None:
    async with taskset_stage(tmp_path, name=name) as it:
        with pytest.raises(ConfigError, match=wanted):
            async with it.pool.child():
                pass


async def test_a_harness_without_known_tokens_is_refused_by_name(tmp_path: Path) -> None:
    async with taskset_stage(tmp_path, harness="codex") as it:
        with pytest.raises(ConfigError, match='"codex": it needs a container, or speaks no chat'):
            async with it.pool.child():
                pass


async def test_without_uv_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "harness"))
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    choice = HarnessChoice(name="null", taskset="calc", path=TASKSETS)
    with pytest.raises(ConfigError, match="its script needs `uv`, and there is none on the PATH: pip install"):
        await ready_scripts(choice)


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


def adds_as_asked(text: str, request: pb.SampleRequest) -> str:
    a, b = map(int, re.findall(r"What is (\d+) \+ (\d+)", text)[-1])
    call = {"name": "calc_add", "arguments": {"a": a, "b": b}}
    return str(a + b) if "<tool_response>" in text else f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


@pytest.mark.long
async def test_a_taskset_that_was_written_elsewhere_is_played(tmp_path: Path) -> None:
    given = os.environ.get("HEADRACE_TASKSETS")
    if given is None:
        pytest.skip("HEADRACE_TASKSETS names no folder with the taskset calc_v1")
    folder = Path(given)
    async with taskset_stage(tmp_path, adds_as_asked, name="calc_v1", path=folder) as it:
        rows = await taskset_rows(EnvironmentTable(name="verifiers:calc_v1", path=folder), 2)
        for row in rows:
            rollout = await play(it, played(row))
            assert (rollout.finish_reason, rollout.text) == (FinishReason.STOP, str(row["answer"]))
            assert rollout.episode is not None and rollout.episode.reward is not None
            assert rollout.episode.reward.value == 1.0 and len(rollout.episode.segments) == 1


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
