"""`headrace prepare`: the run directory of services that something else starts."""

import json
import os
from pathlib import Path

import pytest
import redis

from headrace.cli.app import run
from headrace.services.environment.app import check_digest
from headrace.services.environment.identity import with_copied_code
from headrace.services.environment.settings import EnvironmentSettings
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.errors import ConfigError
from headrace.wire.process.entry import read_settings
from headrace.wire.rundir.layout import RunPaths
from tests.valkey import Valkey

RUN = """
[run]
id = "away"
[model.make]
hidden = 16
intermediate = 16
layers = 1
heads = 2
kv_heads = 1
head_dim = 8
[data]
path = "prompts.jsonl"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(6) for b in range(6)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path / "run.toml"


def prepare(file: Path, valkey: Valkey, *more: str) -> int:
    folder = file.parent / "runs" / "away"
    broker = valkey.url.replace("redis://", "redis://default:word@")
    return run(["prepare", str(file), "--run-dir", str(folder), "--broker", broker, *more])


def test_every_service_finds_its_settings_and_no_secret_is_among_them(file: Path, valkey: Valkey) -> None:
    assert prepare(file, valkey, "--orchestrator", "o:7000") == 0
    folder = file.parent / "runs" / "away"
    for name in ("orchestrator", "reward", "rollout", "trainer"):
        told = json.loads((folder / "config" / f"{name}.json").read_text())
        assert (told["host"], told["grpc_port"], told["http_port"]) == ("0.0.0.0", 7000, 8080)
        assert told["orchestrator_address"] == "o:7000" and told["run_dir"] == str(folder)
        assert told["broker"]["url"] == valkey.url.replace("redis://", "redis://default@")
    assert (folder / "tokenizer.json").read_bytes() == (folder / "model" / "tokenizer.json").read_bytes()
    assert (folder / "prompts.parquet").is_file() and (folder / "model" / "config.json").is_file()
    assert all(b"word" not in path.read_bytes() for path in (folder / "config").iterdir())
    assert read_settings(TrainerSettings, folder / "config" / "trainer.json").run.id == "away"


def test_a_trainer_without_enough_memory_is_reported_with_its_plan(
    file: Path, valkey: Valkey, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.doctor.memory_finding.memory_of_machine", lambda: (1, 1))
    assert prepare(file, valkey) == 0
    assert "DOES NOT FIT" in capsys.readouterr().out


def test_a_repeated_prepare_continues_and_rejects_a_change_of_a_locked_key(
    file: Path, valkey: Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = file.parent / "runs" / "away"
    assert prepare(file, valkey) == 0
    weights = (folder / "model" / "model.safetensors").stat().st_mtime_ns
    (folder / "state.sqlite").touch()
    assert prepare(file, valkey, "--run.max-steps", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["goes_on"] is True
    assert (folder / "model" / "model.safetensors").stat().st_mtime_ns == weights
    assert json.loads((folder / "config" / "trainer.json").read_text())["run"]["max_steps"] == 7
    assert prepare(file, valkey, "--run.seed", "9") == 2
    assert "run.seed was 0" in capsys.readouterr().err
    assert (folder / "config" / "trainer.json").is_file()


def test_a_prepare_interrupted_midway_leaves_the_run_unchanged(
    file: Path, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = file.parent / "runs" / "away"
    assert prepare(file, valkey) == 0
    (folder / "state.sqlite").touch()
    before = {path.name: path.read_bytes() for path in (folder / "config").iterdir()}

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headrace.run.prepare.check_rows", interrupted)
        assert prepare(file, valkey) == 130
    assert {path.name: path.read_bytes() for path in (folder / "config").iterdir()} == before
    assert prepare(file, valkey) == 0


def test_the_group_can_read_the_run_and_confined_services_get_event_folders(
    file: Path, valkey: Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    run_paths = RunPaths(file.parent / "runs" / "away")
    assert prepare(file, valkey, "--event-group", f"reward={os.getegid()}") == 0
    assert run_paths.path.stat().st_mode & 0o777 == 0o750
    own = run_paths.own_events("reward")
    assert own.stat().st_mode & 0o777 == 0o775 and list(run_paths.events.iterdir()) == [own]
    # Prepared is not begun: another config may still take its place.
    assert prepare(file, valkey, "--run.seed", "9") == 0
    for option in ("trainer=1", "reward", "reward=staff"):
        assert prepare(file, valkey, "--event-group", option) == 2
        assert f"--event-group {option}: give SERVICE=GID" in capsys.readouterr().err


def test_the_demo_asks_the_broker_before_it_trains_its_model(
    tmp_path: Path, valkey: Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    with redis.Redis(port=valkey.port) as client:
        client.xadd("headrace:{demo}:prompts", {"header": b"of another run"})
    folder = tmp_path / "runs" / "second"
    demo = ["prepare", "--demo", "--run-dir", str(folder)]
    assert run([*demo, "--broker", valkey.url]) == 2
    said = capsys.readouterr()
    assert "already holds the streams of a run 'demo'" in said.err and "--run.id" in said.err
    assert run(demo) == 2
    assert "no broker" in capsys.readouterr().err
    assert "supervised stage" not in said.out + said.err and not folder.exists()


GAME = "class Sums:\n    def reset(self, task, rollout_id, attempt):\n        return task['prompt']\n"


@pytest.fixture
def played(file: Path) -> Path:
    """A config whose rows are played by code in a folder beside it."""
    (file.parent / "game").mkdir()
    (file.parent / "game" / "game.py").write_text(GAME)
    (file.parent / "game" / "words.txt").write_text("apple")
    file.write_text(RUN + '[environment]\nname = "game:Sums"\npath = "game"\n')
    return file


def test_an_environment_is_copied_and_its_service_finds_its_settings(
    played: Path, valkey: Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(played, valkey) == 0
    assert "start the environment service too" in capsys.readouterr().out
    folder = played.parent / "runs" / "away"
    assert (folder / "environment" / "game.py").read_text() == GAME
    settings = with_copied_code(read_settings(EnvironmentSettings, folder / "config" / "environment.json"))
    check_digest(settings)
    assert settings.environment.path == folder / "environment" and settings.http_port == 8080
    words = folder / "environment" / "words.txt"
    words.write_text("orange")
    with pytest.raises(ConfigError, match=r"is not the code that the run was started with.*words.txt.*restore it"):
        check_digest(settings)
    words.write_text("apple")
    check_digest(settings)
    written = {path.name: path.stat().st_mtime_ns for path in (folder / "config").iterdir()}
    assert written["orchestrator.json"] >= written["environment.json"], "a service that waits for the last finds all"
    # Whoever moves the folder or loses it goes on with the copy; whoever edits it does not.
    (folder / "state.sqlite").touch()
    (played.parent / "game").rename(played.parent / "moved")
    assert prepare(played, valkey) == 0
    (played.parent / "moved").rename(played.parent / "game")
    (played.parent / "game" / "game.py").write_text(GAME + "\n")
    assert prepare(played, valkey) == 2
    assert (folder / "environment" / "game.py").read_text() == GAME
