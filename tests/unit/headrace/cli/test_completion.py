"""Completion knows the settings, and says nothing before a letter is typed."""

from headrace.cli.completion import settings


def test_settings_are_completed_by_the_schema() -> None:
    assert settings("--trainer.learning-r") == ["--trainer.learning-rate"]
    assert "--run.max-steps" in settings("--run.")
    assert "--model.lora.rank" in settings("--model.lo")
    assert "--model.make.kind" in settings("--model.make.")
    assert all(name.startswith("--trainer.") for name in settings("--traine"))
