"""The layout: names that run directories have always had, and what they say about a folder."""

from pathlib import Path

import pytest

from headrace.config.run_dir import check_fresh, has_begun, make_event_folders
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import CONFINED, RunPaths

RUN = RunPaths(Path("RUN"))
BEGUN = (
    *("journal", "checkpoints", "events", "broker", "weights", "export", "rollouts", "trackers", "annotations"),
    *("evaluations", "metrics.jsonl", "evals.jsonl", "reference_logprobs.safetensors", "state.sqlite"),
)
BEFORE = (
    *("config", "model", "base", "tokenizer.json", "prompts.parquet", "eval.parquet", "examples.parquet", "logs"),
    *("eval_examples.parquet", "algorithm", "run", "demo", ".preparing", ".aside-base", ".aside-old-algorithm"),
)


@pytest.mark.parametrize("name", BEGUN)
def test_a_folder_with_a_trace_of_a_run_is_resumed_and_not_begun(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    if name == "events":
        (tmp_path / name / "orchestrator-a.jsonl").touch()
    assert has_begun(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run"):
        check_fresh(tmp_path)


def test_files_of_a_prepared_or_failed_start_do_not_count_as_a_run(tmp_path: Path) -> None:
    for name in BEFORE:
        (tmp_path / name).mkdir()
    check_fresh(tmp_path)
    assert not has_begun(tmp_path)
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match=r"is not empty \(thesis\.tex\)"):
        check_fresh(tmp_path)


def test_only_a_log_in_an_event_folder_and_not_the_folder_counts_as_a_run(tmp_path: Path) -> None:
    make_event_folders(tmp_path, CONFINED, {})
    check_fresh(tmp_path)
    assert not has_begun(tmp_path)
    (RunPaths(tmp_path).own_events("reward") / "reward-0-a.jsonl").touch()
    assert has_begun(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run"):
        check_fresh(tmp_path)
