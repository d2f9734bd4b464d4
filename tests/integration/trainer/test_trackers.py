"""Trackers with the real libraries: what a run told them can be read back, also after it was resumed.

A library that is not installed skips its tests; `headrace[wandb,tensorboard,mlflow,trackio]` has all four.
"""

import importlib.util
import json
import os
import sqlite3
import struct
import time
from pathlib import Path

import pytest

from headrace.services.trainer import metrics
from headrace.services.trainer.config.trackers import TrackersTable
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.trackers import make_trackers
from headrace.wire.rundir import rollouts

# The libraries' own, nothing of ours.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
LOSSES = {1: 0.5, 2: 0.25, 3: 0.125}
ACCURACY = {0: 0.125, 3: 0.75}
RECEIPT = "0f" * 32


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries' own files go nowhere else."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "TRACKIO_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name))
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)


def needs(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        assert "HEADRACE_REQUIRE_TRACKERS" not in os.environ, f"{missing[0]} is not installed"
        pytest.skip(f"{missing[0]} is not installed: pip install 'headrace[wandb,tensorboard,mlflow,trackio]'")


def settings(run_dir: Path) -> TrainerSettings:
    return TrainerSettings(run_dir=run_dir)


def life(run_dir: Path, name: str, steps: list[int], versions: list[int], **own: object) -> None:
    """One life of a run: writes its lines while the tracker is told them."""
    run_dir.mkdir(exist_ok=True)
    table = TrackersTable.model_validate(
        {"use": [name], "project": "sums", "name": "one", "finish_s": 60, "completions": 1, name: own}
    )
    trackers = make_trackers(settings(run_dir), table)
    for step in steps:
        rollouts.write(
            run_dir / "rollouts", step, [{"completion": f"a|{step}", "reward": 0.5, "columns": '{"answer": "b"}'}]
        )
    trackers.start()
    for file, key, lines in (
        (
            "metrics.jsonl",
            "step",
            [{"step": step, "t": 1e9 + step, "loss": LOSSES[step], "kl": None} for step in steps],
        ),
        ("evals.jsonl", "version", [{"version": v, "t": 1e9 + v, "accuracy": ACCURACY[v]} for v in versions]),
    ):
        assert key in json.dumps(lines) or not lines
        with (run_dir / file).open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
    before = metrics.TRACKER_DROPPED.labels(name)._value.get()
    trackers.finish(step=max(steps), receipt=RECEIPT)
    assert metrics.TRACKER_DROPPED.labels(name)._value.get() == before


def two_lives(run_dir: Path, name: str, **own: object) -> None:
    life(run_dir, name, [1, 2], [0], **own)
    life(run_dir, name, [3], [3], **own)


def wandb_records(data: bytes) -> list[bytes]:
    """The records of a `.wandb` file: a LevelDB log behind seven bytes of its own."""
    found, place, block = [b""], 7, 32768
    while place + 7 <= len(data):
        if block - place % block < 7:  # Too short for a header: padding.
            place += block - place % block
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        found[-1] += data[place + 7 : place + 7 + length]
        if kind in (1, 4):  # Whole, or the last part.
            found.append(b"")
        place += 7 + length
    return found[:-1]


def test_tensorboard_shows_both_lives_as_one_run(tmp_path: Path) -> None:
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    two_lives(tmp_path / "run", "tensorboard", dir=tmp_path / "boards")
    shown = EventAccumulator(str(tmp_path / "boards" / "one"))
    shown.Reload()
    losses = shown.Scalars("train/loss")
    assert {one.step: one.value for one in losses} == LOSSES and len(losses) == 3
    assert [one.wall_time for one in losses] == [1e9 + 1, 1e9 + 2, 1e9 + 3]
    assert {one.step: one.value for one in shown.Scalars("eval/accuracy")} == ACCURACY
    assert shown.Tags()["tensors"] == ["config/text_summary", "completions/text_summary", "receipt/text_summary"]
    texts = [one.tensor_proto.string_val[0].decode() for one in shown.Tensors("completions/text_summary")]
    assert [text.splitlines()[-1].split(" | ")[-2:] for text in texts] == [[f"a\\|{step}", "b |"] for step in LOSSES]
    (*_, receipt) = shown.Tensors("receipt/text_summary")
    assert (receipt.step, receipt.tensor_proto.string_val) == (3, [RECEIPT.encode()])


def wandb_rows(files: list[Path]) -> tuple[set[tuple[str, str]], list[dict[str, float]], dict[str, object]]:
    """Projects with their runs' names, what was logged, and the summary."""
    from wandb.proto import wandb_internal_pb2

    rows: list[dict[str, float]] = []
    projects, summary = set(), dict[str, object]()
    for file in files:
        for data in wandb_records(file.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.HasField("run"):
                projects.add((record.run.project, record.run.display_name))
            for item in record.summary.update:
                summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
            if record.HasField("history"):
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                assert "completions/_type" not in items or items["completions/nrows"] == "1"
                rows.append({key: float(value) for key, value in items.items() if not key.startswith("completions")})
    return projects, rows, summary


def test_wandb_writes_both_lives_under_one_run_id(tmp_path: Path) -> None:
    needs("wandb")
    two_lives(tmp_path / "run", "wandb", mode="offline")
    files = sorted((tmp_path / "run" / "trackers" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2 and len({file.name for file in files}) == 1
    # Its own service, a process, writes the file; the end of a run is acknowledged, which says nothing of the disk.
    end = time.monotonic() + 60
    while len(wandb_rows(files)[1]) < 2 * len(LOSSES) + len(ACCURACY) and time.monotonic() < end:
        time.sleep(0.1)
    projects, rows, summary = wandb_rows(files)
    assert (summary["receipt"], summary["receipt_step"]) == (RECEIPT, 3)
    assert projects == {("sums", "one")}
    assert {row["train/step"]: row["train/loss"] for row in rows if "train/loss" in row} == LOSSES
    assert {row["eval/version"]: row["eval/accuracy"] for row in rows if "eval/accuracy" in row} == ACCURACY


def test_mlflow_keeps_both_lives_in_one_run_of_its_database(tmp_path: Path) -> None:
    needs("mlflow", "sqlalchemy", "alembic")
    from mlflow.tracking import MlflowClient

    two_lives(tmp_path / "run", "mlflow")
    database = f"sqlite:///{tmp_path / 'run' / 'trackers' / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=database, registry_uri=database)
    experiment = client.get_experiment_by_name("sums")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "one" and run.info.status == "FINISHED" and run.data.params["run.seed"] == "0"
    assert (run.data.tags["headrace.receipt"], run.data.tags["headrace.receipt_step"]) == (RECEIPT, "3")
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert {one.step: one.value for one in history} == LOSSES and len(history) == 3
    evals = client.get_metric_history(run.info.run_id, "eval/accuracy")
    assert {one.step: one.value for one in evals} == ACCURACY


def test_trackio_keeps_both_lives_in_one_run_of_its_database(tmp_path: Path) -> None:
    needs("trackio")
    two_lives(tmp_path / "run", "trackio")
    with sqlite3.connect(tmp_path / "home" / "TRACKIO_DIR" / "sums.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
    assert {name for name, _, _ in rows} == {"one"}
    told = [(step, json.loads(text)) for _, step, text in rows]
    assert {step: one["train/loss"] for step, one in told if "train/loss" in one} == LOSSES
    assert {step: one["eval/accuracy"] for step, one in told if "eval/accuracy" in one} == ACCURACY and len(told) == 7
    assert [(step, one["receipt"]) for step, one in told if "receipt" in one] == [(2, RECEIPT), (3, RECEIPT)]
