"""The examples are valid, as they are and as the end-to-end test uses them."""

import importlib.util
from pathlib import Path

import pytest

from headrace.config.resolve import resolve

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/run.toml")), ids=lambda path: path.parent.name)
def test_an_examples_config_is_valid(path: Path) -> None:
    assert resolve(path).config.run.id == path.parent.name


@pytest.mark.parametrize("path", sorted((EXAMPLES / "rlhf").glob("*.toml")), ids=lambda path: path.stem)
def test_the_stages_of_the_rlhf_example_are_valid(path: Path) -> None:
    config = resolve(path).config
    assert config.run.stage == {"ppo": "rl"}.get(path.stem, path.stem)


@pytest.mark.parametrize("path", sorted((EXAMPLES / "tools").glob("*.toml")), ids=lambda path: path.stem)
def test_the_stages_of_the_tools_example_are_valid(path: Path) -> None:
    config = resolve(path).config
    assert config.run.stage == {"run": "rl"}.get(path.stem, path.stem)
    assert config.environment.on is (path.stem == "run")


def test_the_examples_own_reward_is_one_only_for_the_right_sum() -> None:
    spec = importlib.util.spec_from_file_location("rewards", EXAMPLES / "arithmetic" / "rewards.py")
    assert spec and spec.loader
    rewards = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rewards)
    assert [rewards.closeness(text, answer="42") for text in ("42", "43", "x", "")] == [1.0, 0.5, 0.0, 0.0]
