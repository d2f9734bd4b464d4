"""The environments of docs/migration.md: a script of TRL's is played as it is, a tool of verl's with verl's rows.

The script imports `trl`; a module of that name stands in for it, with nothing in it that an episode would need.
"""

import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.settings import EnvironmentTable
from tests.docs.pages import ROOT, blocks
from tests.integration.environment.test_child import CONFIG, LONG_S

PAGE = ROOT / "docs" / "migration.md"
STAND_IN = "class GRPOConfig: ...\nclass GRPOTrainer: ...\n"


def block(kind: str, about: str) -> str:
    (found,) = [one.text for one in blocks(kind) if one.page == PAGE and about in one.text]
    return found


@asynccontextmanager
async def played(folder: Path, table: EnvironmentTable) -> AsyncIterator[ChildProcess]:
    """A child that plays what the config names, with the modules of a folder."""
    made = ChildProcess(
        replace(CONFIG, path=folder, environment=table.name, tools=table.tools, rewards=table.rewards, memory_mib=4096)
    )
    await made.start()
    try:
        yield made
    finally:
        await made.kill()


async def called(child: ChildProcess, tool: str, **arguments: object) -> str:
    call = {"name": tool, "arguments": arguments}
    answer = await child.step({"role": "assistant", "content": "", "tool_calls": [call]}, timeout_s=LONG_S)
    return str(answer["messages"][0]["content"])


async def test_the_documented_trl_environment_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "lock.py").write_text(block("python", "class LockEnv"))
    (tmp_path / "trl.py").write_text(STAND_IN)
    table = EnvironmentTable.model_validate(tomllib.loads(block("toml", "trl:lock"))["environment"])
    row: dict[str, Any] = {"prompt": [{"role": "user", "content": "Open the lock."}], "number": 5}
    async with played(tmp_path, table) as child:
        begun = await child.reset(row, "r/0", 1, timeout_s=LONG_S)
        assert begun["messages"][-1]["content"] == "Open the lock. You have three tries."
        assert [tool["function"]["name"] for tool in child.tools] == ["try_number"]
        lost = await child.reward([], timeout_s=LONG_S)
        assert (lost["value"], lost["components"]) == (0.0, {"opened": 0.0})
        said = [await called(child, "try_number", number=number) for number in (3, 5, 5)]
        assert said == ["Higher.", "It opens.", "{'error': 'There are no tries left.'}"]
        won = await child.reward([], timeout_s=LONG_S)
        assert won["value"] == pytest.approx(1.1) and won["components"] == {"opened": 1.0, "few_tries": 0.1}


def test_the_config_bounds_the_policys_messages_by_one_more_than_the_scripts_iterations() -> None:
    script, config = block("python", "class LockEnv"), tomllib.loads(block("toml", "trl:lock"))
    assert f"max_tool_calling_iterations={config['environment']['max_turns'] - 1}" in script
    assert f"max_completion_length={config['rollout']['sampling']['max_tokens']}" in script
    assert f"max_steps={config['run']['max_steps']}" in script


async def test_a_tool_of_verls_is_played_with_verls_rows(tmp_path: Path) -> None:
    (tmp_path / "checked.py").write_text(block("python", "class Checked"))
    table = EnvironmentTable.model_validate(tomllib.loads(block("toml", "checked:Checked"))["environment"])
    row: dict[str, Any] = {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "system", "content": "Use check."}, {"role": "user", "content": "1 + 2"}],
        "reward_model": {"style": "rule", "ground_truth": "3"},
        "extra_info": {"index": 0, "tools_kwargs": {"check": {"create_kwargs": {"ground_truth": "3"}}}},
    }
    async with played(tmp_path, table) as child:
        begun = await child.reset(row, "r/0", 1, timeout_s=LONG_S)
        assert begun["messages"] == row["prompt"]
        (tool,) = child.tools
        assert tool["function"]["parameters"]["properties"] == {
            "answer": {"type": "string", "description": "Digits alone."}
        }
        assert [await called(child, "check", answer=answer) for answer in ("4", "3")] == ["wrong", "right"]
        found = await child.reward([], timeout_s=LONG_S)
        assert found["value"] == pytest.approx(0.95) and found["components"] == {"right": 1.0}
