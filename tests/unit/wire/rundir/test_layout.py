"""The layout: names that run directories have always had, and what they say about a folder."""

from pathlib import Path

import pytest

from headrace.config.run_dir import PREPARED, TRACES, check_fresh, has_begun, make_event_folders
from headrace.reference.run_dir_docs import written
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import CONFINED, RunPaths, entries

RUN = RunPaths(Path("RUN"))
PATHS = {
    RUN.run_toml: "config/run.toml",
    RUN.settings("rollout-1"): "config/rollout-1.json",
    RUN.data_summary: "config/data.json",
    RUN.model_files: "config/model_files.json",
    RUN.code_digests: "config/algorithm.json",
    RUN.log("trainer"): "logs/trainer.log",
    RUN.process("orchestrator"): "run/orchestrator.json",
    RUN.supervisor: "run/supervisor.json",
    RUN.broker_socket: "run/socket",
    RUN.rollout_file(12): "rollouts/step-000012.parquet",
    RUN.votes: "annotations/votes.jsonl",
    RUN.metrics: "metrics.jsonl",
    RUN.evals: "evals.jsonl",
    RUN.state: "state.sqlite",
    RUN.reference_logprobs: "reference_logprobs.safetensors",
}
BEGUN = (
    *("journal", "checkpoints", "events", "broker", "weights", "export", "rollouts", "trackers", "annotations"),
    *("metrics.jsonl", "evals.jsonl", "reference_logprobs.safetensors", "state.sqlite"),
)
BEFORE = (
    *("config", "model", "base", "tokenizer.json", "prompts.parquet", "eval.parquet", "examples.parquet", "logs"),
    *("eval_examples.parquet", "algorithm", "run", "demo", ".preparing", ".aside-base", ".aside-old-algorithm"),
)


def test_the_names_are_those_of_existing_run_directories() -> None:
    assert {path.as_posix(): name for path, name in PATHS.items()} == {f"RUN/{name}": name for name in PATHS.values()}


@pytest.mark.parametrize("name", BEGUN)
def test_a_folder_with_a_trace_of_a_run_is_resumed_and_not_begun(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    if name == "events":
        (tmp_path / name / "orchestrator-a.jsonl").touch()
    assert has_begun(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run"):
        check_fresh(tmp_path)


def test_what_a_start_has_prepared_or_left_behind_is_no_run(tmp_path: Path) -> None:
    for name in BEFORE:
        (tmp_path / name).mkdir()
    check_fresh(tmp_path)
    assert not has_begun(tmp_path)
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match=r"is not empty \(thesis\.tex\)"):
        check_fresh(tmp_path)


def test_the_empty_folders_of_event_logs_are_no_run_and_a_log_in_one_is(tmp_path: Path) -> None:
    make_event_folders(tmp_path, CONFINED, {})
    check_fresh(tmp_path)
    assert not has_begun(tmp_path)
    (RunPaths(tmp_path).own_events("reward") / "reward-0-a.jsonl").touch()
    assert has_begun(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run"):
        check_fresh(tmp_path)


def test_an_entry_is_either_prepared_or_a_trace() -> None:
    assert set(TRACES).isdisjoint(PREPARED)
    names = [entry.name for entry in entries()]
    assert len(names) == len(set(names)) and {name.split("/")[0] for name in names} == {*TRACES, *PREPARED}


def test_a_page_without_the_place_of_the_table_is_refused() -> None:
    page = "a\n<!-- run directory -->\nof before\n<!-- /run directory -->\nb\n"
    assert "of before" not in written(page) and "| `metrics.jsonl` | one line a step |" in written(page)
    with pytest.raises(ValueError, match="has no <!-- run directory -->"):
        written("a\nb\n")
