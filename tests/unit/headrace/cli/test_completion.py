"""Completion knows the settings, and says nothing before a letter is typed."""

import pytest

from headrace.cli.app import run
from headrace.cli.completion import settings
from headrace.inspect.output import BAD_INPUT


def test_settings_are_completed_by_the_schema() -> None:
    assert settings("--trainer.learning-r") == ["--trainer.learning-rate"]
    assert "--run.max-steps" in settings("--run.")
    assert "--model.lora.rank" in settings("--model.lo")
    assert "--model.make.kind" in settings("--model.make.")
    assert all(name.startswith("--trainer.") for name in settings("--traine"))


@pytest.mark.parametrize(
    ("option", "hint"),
    [("--maxsteps", "--run.max-steps"), ("--learning-rate", "--trainer.learning-rate"), ("--resum", "--resume")],
)
def test_an_unknown_option_is_answered_with_the_nearest_settings(
    option: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "run.toml", option, "5"]) == BAD_INPUT
    assert hint in capsys.readouterr().err
