"""`[trackers]`: what is refused, and what of a config trackers are sent."""

from pathlib import Path

import pytest

from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.config.trackers import TrackersTable, check_installed
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.trackers import make_trackers
from headrace.services.trainer.trackers.tracker_set import sent_config
from headrace.wire.errors import ConfigError


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "mlflow", "trackio"])
def test_a_tracker_that_is_not_installed_is_refused_with_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("headrace.services.trainer.config.trackers.find_spec", lambda module: None)
    table = TrackersTable.model_validate({"use": [name]})
    with pytest.raises(ConfigError, match=rf"\[trackers\] use.*pip install 'headrace\[{name}\]'"):
        make_trackers(TrainerSettings(run_dir=tmp_path), table)


def test_a_server_of_mlflow_needs_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "headrace.services.trainer.config.trackers.find_spec",
        lambda module: None if module == "sqlalchemy" else object(),
    )
    check_installed(TrackersTable.model_validate({"use": ["mlflow"], "mlflow": {"uri": "http://mlflow:5000"}}))
    with pytest.raises(ConfigError, match="sqlalchemy"):
        check_installed(TrackersTable.model_validate({"use": ["mlflow"]}))


def test_each_tracker_is_named_once() -> None:
    with pytest.raises(ValueError, match="once"):
        TrackersTable(use=("wandb", "wandb"))


def test_without_trackers_nothing_is_made(tmp_path: Path) -> None:
    trackers = make_trackers(TrainerSettings(run_dir=tmp_path), TrackersTable())
    trackers.start()
    trackers.finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [TrainerSettings, StageSettings])
def test_no_address_and_no_password_leaves_the_run(kind: type[TrainerSettings] | type[StageSettings]) -> None:
    settings = kind.model_validate(
        {"broker": {"url": "redis://:hunter2@valkey/0"}, "orchestrator_address": "orchestrator:7000"}
    )
    sent = sent_config(settings)
    assert "hunter2" not in str(sent) and "valkey" not in str(sent) and "7000" not in str(sent)
    assert sent["trainer"]["optimizer"] == "adamw" and sent["run"]["seed"] == 0
