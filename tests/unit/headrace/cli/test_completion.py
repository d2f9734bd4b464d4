"""Completion knows the settings, and says nothing before a letter is typed."""

import pytest

from headrace.cli.completion import completion_text, settings


def test_settings_are_completed_by_the_schema() -> None:
    assert settings("--trainer.learning-r") == ["--trainer.learning-rate"]
    assert "--run.max-steps" in settings("--run.")
    assert "--model.lora.rank" in settings("--model.lo")
    assert "--model.make.kind" in settings("--model.make.")
    assert all(name.startswith("--trainer.") for name in settings("--traine"))


def test_underscores_find_them_too() -> None:
    assert settings("--run.max_st") == settings("--run.max-st") != []


@pytest.mark.parametrize("word", ["", "-", "--", "train", "run.max"])
def test_nothing_is_proposed_before_a_letter(word: str) -> None:
    assert settings(word) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shells_script_is_told(shell: str) -> None:
    script = completion_text(["--show-completion", shell])
    assert script is not None and "_HEADRACE_COMPLETE" in script and "headrace" in script


@pytest.mark.parametrize("words", [[], ["--show-completion"], ["--show-completion", "csh"], ["train", "bash"]])
def test_other_command_lines_are_left_alone(words: list[str]) -> None:
    assert completion_text(words) is None
