"""The configs of docs/migration.md are valid, and its port of a TRL script keeps the script's settings and rewards."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "migration.md"
CONFIGS = [block.text for block in blocks("toml") if block.page == PAGE]


@pytest.mark.parametrize("text", CONFIGS, ids=range(len(CONFIGS)))
def test_a_config_is_valid(text: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    config = resolve(file, arguments=[] if "[data]" in text else ["--data.path=rows.jsonl"]).config
    assert config.algorithm.name == "grpo"


def ported() -> dict[str, str]:
    """The files that the page's shell block writes, by name."""
    (block,) = [one.text for one in blocks("bash") if one.page == PAGE]
    return dict(re.findall(r"^cat > ported/(\S+) <<'END'\n(.*?)^END$", block, re.MULTILINE | re.DOTALL))


def whole_script() -> str:
    """The script of which the page has a port with all files."""
    (found,) = [one.text for one in blocks("python") if one.page == PAGE and "reward_weights" in one.text]
    return found


def test_the_port_has_the_settings_of_the_script() -> None:
    script = whole_script()
    calls = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)]
    (config,) = [call for call in calls if ast.unparse(call.func) == "GRPOConfig"]
    (trainer,) = [call for call in calls if ast.unparse(call.func) == "GRPOTrainer"]
    given = {word.arg: ast.literal_eval(word.value) for word in config.keywords}
    model = {word.arg: word.value for word in trainer.keywords}["model"]
    tables = tomllib.loads(ported()["run.toml"])
    completions = given["per_device_train_batch_size"] * given["gradient_accumulation_steps"]
    assert tables["model"]["path"] == ast.literal_eval(model)
    assert tables["run"]["max_steps"] == given["max_steps"]
    assert tables["batch"] == {
        "groups": completions // given["num_generations"],
        "group_size": given["num_generations"],
    }
    assert tables["rollout"]["sampling"] == {
        "max_tokens": given["max_completion_length"],
        "temperature": given["temperature"],
    }
    assert [one.get("weight", 1.0) for one in tables["reward"]["scorers"]] == given["reward_weights"]
    assert (tables["algorithm"]["name"], tables["algorithm"]["kl_coef"]) == (given["loss_type"], given["beta"])
    assert tables["trainer"] == {
        "learning_rate": given["learning_rate"],
        "schedule": given["lr_scheduler_type"],
        "checkpoint_every": given["save_steps"],
    }


def test_the_port_has_the_reward_functions_of_the_script() -> None:
    script = whole_script()
    functions, here = (
        [ast.dump(node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        for text in (script, ported()["rewards.py"])
    )
    assert functions == here and len(here) == 2
