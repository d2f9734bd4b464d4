"""Every key of the config says what it means."""

import json
import re
from typing import Any

import pytest

from headrace.config.common import common_schema
from headrace.config.resolve import resolve
from headrace.config.schema import RunFile
from headrace.wire.errors import ConfigError


def test_every_key_has_a_description() -> None:
    schema = RunFile.model_json_schema()
    tables: dict[str, Any] = {"run.toml": schema, **schema["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, table in tables.items()
        for key, value in table.get("properties", {}).items()
        if "description" not in value and "$ref" not in value
    ]
    assert silent == []


def test_every_common_key_exists_and_has_a_description() -> None:
    found = common_schema()
    tables = found.pop("$defs")
    assert all(name in tables for name in re.findall(r'"#/\$defs/(\w+)"', json.dumps([found, tables])))
    assert 25 <= len(found) <= 35 and all(value["description"] for value in found.values())
    assert found["trainer.learning_rate"]["default"] == 1e-6


DATA = ("--data.path", "p.jsonl")


@pytest.mark.parametrize(
    ("given", "way_out"),
    [
        ("--rollout.sampling.top-k 513", r"rollout\.sampling\.top_k = 513: .* set it to 512 or less"),
        ("--rollout.sampling.top-p 0.9 --rollout.sampling.forced-lengths-column n", "leave out top_k, top_p and min_p"),
        (
            "--rollout.sampling.min-p 0.1 --rollout.engine sglang --rollout.deterministic true",
            "set rollout.deterministic = false",
        ),
        (
            "--rollout.sampling.top-k 9 --algorithm.name ppo --algorithm.anchor behaviour"
            " --algorithm.correction.preset none",
            "set algorithm.anchor = 'proximal'",
        ),
        ("--algorithm.kl-support kept", r"set rollout\.sampling\.top_k, top_p or min_p"),
    ],
)
def test_rl_rejects_a_cut_off_draw_only_where_the_trainer_could_not_replay_it(given: str, way_out: str) -> None:
    with pytest.raises(ConfigError, match=way_out):
        resolve(None, arguments=[*DATA, *given.split()])
    assert resolve(None, arguments=[*DATA, *["--rollout.sampling.top-p", "0.9", "--rollout.engine", "sglang"]])
    # The other stages draw nothing.
    assert resolve(None, arguments=[*DATA, *given.split(), "--run.stage", "sft"])


def test_lengths_are_not_forced_where_the_engine_cannot() -> None:
    forced = ("--rollout.sampling.forced-lengths-column", "lengths")
    assert resolve(None, arguments=[*DATA, *forced])
    with pytest.raises(ConfigError, match="SGLang cannot force a token"):
        resolve(None, arguments=[*DATA, *forced, "--rollout.engine", "sglang"])
