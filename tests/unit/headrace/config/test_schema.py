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


@pytest.mark.parametrize("engine", ["torch", "sglang"])
@pytest.mark.parametrize("given", [("--rollout.sampling.top-p", "0.99"), ("--rollout.sampling.top-k", "20")])
def test_rl_rejects_a_sampling_distribution_that_differs_from_the_trained_one(
    engine: str, given: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.sampling\.top_. = .* set top_. = .* or leave it out"):
        resolve(None, arguments=[*DATA, *given, "--rollout.engine", engine])
    # The other stages draw nothing.
    assert resolve(None, arguments=[*DATA, *given, "--run.stage", "sft"])


def test_lengths_are_not_forced_where_the_engine_cannot() -> None:
    forced = ("--rollout.sampling.forced-lengths-column", "lengths")
    assert resolve(None, arguments=[*DATA, *forced])
    with pytest.raises(ConfigError, match="SGLang cannot force a token"):
        resolve(None, arguments=[*DATA, *forced, "--rollout.engine", "sglang"])
