"""What of a config cannot be played, and the way out of it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.config.schema import RunFile
from headrace.config.services import specs
from headrace.services.environment.identity import environment_digest
from headrace.services.environment.settings import EnvironmentTable

PLAYED: dict[str, Any] = {
    "data": {"path": "tasks.jsonl"},
    "environment": {"name": "game:Sums"},
    "batch": {"group_size": 4},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"environment": {"name": "g:S", "episode_s": 2000.0}}, "must be below trainer.batch_timeout_s = 1800"),
        ({"environment": {"name": "g:S", "slots": 3}}, "environment.slots = 3 must be at least batch.group_size = 4"),
        ({"environment": {"name": "g:S", "sandbox": "none"}}, "nothing that keeps an environment from the network"),
        ({"environment": {"path": "game"}}, "neither name, tools nor command say what is played"),
        ({"environment": {"name": "g:S", "command": ["run"]}}, "in place of name and tools: leave these out"),
        ({"environment": {"command": ["run"], "network": True}}, "command has no network but the policy's endpoint"),
        ({"environment": {"command": ["run"], "sandbox": "none"}}, "leave network and sandbox out"),
        ({"environment": {"name": "g:S", "reward_file": "r"}}, "reward_command and reward_file are for command"),
        ({"rollout": {"sampling": {"forced_lengths_column": "n"}}}, "is for completions, not for episodes"),
        ({"run": {"stage": "sft"}}, "[environment] is for run.stage = 'rl', not 'sft'"),
        (
            {"environment": {}, "reward": {"scorers": [{"name": "environment"}]}},
            "the scorer 'environment' needs an environment",
        ),
    ],
)
def test_an_unplayable_environment_config_is_rejected_with_a_fix(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RunFile.model_validate(PLAYED | change)
    assert words in str(caught.value)


def test_a_run_has_workers_only_if_it_plays() -> None:
    played = RunFile.model_validate(PLAYED | {"environment": {"tools": ["game:add"], "replicas": 2}})
    assert [one.name for one in specs(played)][-2:] == ["environment-0", "environment-1"]
    plain = RunFile.model_validate({"data": {"path": "rows.jsonl"}})
    assert not any(one.service == "environment" for one in specs(plain))


def test_the_environment_digest_covers_code_and_every_key_that_changes_an_episode(tmp_path: Path) -> None:
    (tmp_path / "game.py").write_text("class Sums: ...\n")
    table = EnvironmentTable(name="game:Sums", path=tmp_path)
    digest = environment_digest(table)
    of_the_machine = {"slots": 3, "replicas": 2, "hold_s": 1.0, "folders": (tmp_path,), "variables": ("A",)}
    for name, value in of_the_machine.items():
        assert environment_digest(table.model_copy(update={name: value})) == digest, name
    for name, value in (("max_turns", 2), ("tools", ("game:add",)), ("tool_s", 1.0), ("renderer", "qwen3")):
        assert environment_digest(table.model_copy(update={name: value})) != digest, name
    (tmp_path / "game.py").write_text("class Sums: pass\n")
    assert environment_digest(table) != digest
