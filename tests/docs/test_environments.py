"""The page about environments: its game is played in a child, and its config is valid."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

from headrace.config.schema import RunFile
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.settings import EnvironmentTable
from headrace.wire.contracts import FinishReason
from tests.integration.environment.test_child import CONFIG, LONG_S

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()


def block(language: str, about: str = "") -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (one,) = [text for text in found if about in text]
    return str(one)


async def test_the_game_of_the_page_is_played(tmp_path: Path) -> None:
    (tmp_path / "game.py").write_text(block("python"))
    child = ChildProcess(replace(CONFIG, path=tmp_path, environment="game:Sums"))
    await child.start()
    try:
        begun = await child.reset({"a": 12, "b": 30}, "r/0", 0, timeout_s=LONG_S)
        assert begun["messages"] == [{"role": "user", "content": "12+30"}]
        for said, done in (("41", False), ("42", True)):
            message: dict[str, object] = {"role": "assistant", "content": said, "tool_calls": []}
            answer = await child.step(message, timeout_s=LONG_S)
            assert answer["done"] is done
        assert answer["turn_reward"] == 0.1
        assert (await child.reward([], timeout_s=LONG_S))["value"] == 1.0
    finally:
        await child.kill()


def test_the_config_of_the_page_is_valid() -> None:
    config = RunFile.model_validate(tomllib.loads(block("toml", "game:Sums")))
    assert config.environment.on and config.environment.slots >= config.batch.group_size


def test_the_pages_example_of_folders_and_variables_is_a_valid_environment_table() -> None:
    table = EnvironmentTable.model_validate(tomllib.loads(block("toml", "folders"))["environment"])
    assert table.folders and table.variables and table.network


def test_the_page_names_every_way_in_which_an_episode_ends() -> None:
    (table,) = re.findall(r"^\| finish reason \|.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines())))
    assert named == {str(one) for one in FinishReason}
