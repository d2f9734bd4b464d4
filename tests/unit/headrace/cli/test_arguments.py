"""Dotted settings may stand anywhere on the command line."""

import pytest

from headrace.cli.app import split_overrides


@pytest.mark.parametrize(
    ("line", "words", "overrides"),
    [
        ("train run.toml --run.seed 3", "train run.toml", "--run.seed 3"),
        ("train --run.seed 3 run.toml --json", "train run.toml --json", "--run.seed 3"),
        ("train run.toml --run.seed=3 --resume", "train run.toml --resume", "--run.seed=3"),
        ("train --run-dir a.b run.toml", "train --run-dir a.b run.toml", ""),
        ("demo --rollout.deterministic --json", "demo --json", "--rollout.deterministic"),
        ("demo --sft.steps -3", "demo", "--sft.steps -3"),
    ],
)
def test_settings_and_options_are_told_apart(line: str, words: str, overrides: str) -> None:
    assert split_overrides(line.split()) == (words.split(), overrides.split())
