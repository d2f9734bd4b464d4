"""The keys that most runs set: `headrace config --schema --common`."""

import json
import re
from typing import Any

from headrace.config.schema import RunFile

COMMON = (
    *("run.id", "run.stage", "run.seed", "run.max_steps", "run.max_staleness", "run.device"),
    *("model.path", "model.dtype", "model.lora.rank"),
    *("data.path", "data.columns", "data.eval_path", "data.eval_size"),
    *("batch.groups", "batch.group_size", "algorithm.name", "algorithm.kl_coef", "algorithm.clip_high"),
    *("rollout.engine", "rollout.replicas", "rollout.sampling.max_tokens", "rollout.sampling.temperature"),
    *("reward.scorers", "eval.every", "eval.prompts", "trackers.use"),
    *("trainer.learning_rate", "trainer.warmup_steps", "trainer.schedule", "trainer.micro_batch_tokens"),
    *("trainer.ranks", "trainer.checkpoint_every", "trainer.keep_checkpoints"),
)


def common_schema() -> dict[str, dict[str, Any]]:
    """Key -> its JSON schema, with type, default and description; `$defs` has the tables that these refer to.

    Raises KeyError for a key that does not exist.
    """
    schema = RunFile.model_json_schema()
    found = {}
    for key in COMMON:
        place = schema
        for name in key.split("."):
            place = place["properties"][name]
            # A list of tables may be one table.
            place = place["anyOf"][0] | place if "$ref" in place.get("anyOf", [{}])[0] else place
            place = schema["$defs"][place["$ref"].rpartition("/")[2]] | place if "$ref" in place else place
        found[key] = place
    tables: dict[str, Any] = {}
    while new := set(re.findall(r'"#/\$defs/(\w+)"', json.dumps([found, tables]))) - tables.keys():
        tables |= {name: schema["$defs"][name] for name in new}
    return {**found, "$defs": tables}
