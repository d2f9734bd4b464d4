"""Values that the stage of a config does not read are named, with their place."""

from pathlib import Path

from headrace.config.resolve import resolve
from headrace.config.toml import to_toml
from headrace.config.unused import unused

SFT = """
[run]
stage = "sft"
max_steps = 30
max_staleness = 1
seed = 3
[data]
path = "d.jsonl"
[sft]
steps = 5
[dpo]
beta = 0.2
[rollout]
deterministic = true
replicas = 4
[trainer]
learning_rate = 1e-3
publish = "disk"
checkpoint_every = 5
"""


def said(folder: Path, text: str, *arguments: str) -> list[str]:
    (folder / "run.toml").write_text(text)
    return [line.replace(f"{folder}/", "") for line in unused(resolve(folder / "run.toml", arguments=arguments))]


def test_a_stage_on_examples_names_what_others_read_and_no_default(tmp_path: Path) -> None:
    assert said(tmp_path, SFT, "--broker.lease-s", "5") == [
        "run.toml:4: [run] max_steps: not used by the stage sft, whose own table is [sft]",
        "run.toml:12: [dpo] beta: not used by the stage sft",
        "run.toml:15: [rollout] replicas: not used by the stage sft",
        "run.toml:17: [trainer] learning_rate, publish: not used by the stage sft, whose own table is [sft]",
        "--broker.lease-s: [broker] lease_s: not used by the stage sft",
    ]


def test_rl_reads_all_tables_but_those_of_the_other_stages(tmp_path: Path) -> None:
    assert said(tmp_path, SFT, "--run.stage", "rl") == [
        "run.toml:10: [sft] steps: not used by the stage rl",
        "run.toml:12: [dpo] beta: not used by the stage rl",
    ]


def test_a_copy_of_a_run_directorys_config_has_only_defaults_of_other_stages(tmp_path: Path) -> None:
    config = resolve(None, arguments=("--data.path", "d.jsonl", "--run.stage", "dpo")).config
    assert said(tmp_path, to_toml(config.model_dump(mode="json", serialize_as_any=True))) == []
