"""Curves: what is drawn, and that the pictures are pictures."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headrace.cli.plot import plot_runs
from headrace.inspect.plot import RunRows, choose_panels
from headrace.wire.errors import ConfigError

WANTED = ["reward", "held-out accuracy", "loss", "KL to the sampling policy", "entropy, nats",
          "length, tokens", "staleness, versions", "seconds"]  # fmt: skip


def rows(steps: int, *, offset: float = 0.0) -> list[dict[str, float | None]]:
    return [
        {
            "step": step, "reward_mean": step / steps + offset, "loss": 0.1 / step, "policy_kl": 0.01, "entropy": 1.0,
            "completion_length_mean": 20.0, "staleness_mean": 0.5, "seconds": 1.0,
        }
        for step in range(1, steps + 1)
    ]  # fmt: skip


def run(name: str, steps: int) -> RunRows:
    return RunRows(
        name=name, steps=rows(steps), evals=[{"version": 0, "accuracy": 0.5}, {"version": 9, "accuracy": None}]
    )


def make(folder: Path, steps: int) -> Path:
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "run.toml").write_text('[run]\nid = "r"\n')
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(steps)))
    (folder / "evals.jsonl").write_text('{"version": 0, "accuracy": 0.5}\n{"version": 9, "accuracy": 0.75}\n')
    return folder


def test_points_without_a_number_are_left_out() -> None:
    panels = {panel.title: curves for panel, curves in choose_panels([run("a", 50)])}
    assert panels["held-out accuracy"][0].x.tolist() == [0.0]


def test_pictures_of_one_run_and_of_several_are_written(tmp_path: Path) -> None:
    one, two = make(tmp_path / "one", 40), make(tmp_path / "two", 5)
    files = plot_runs([one], None)
    assert files == [one / "plots" / "curves.png", one / "plots" / "curves.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG") and files[0].stat().st_size > 10_000
    drawn = "".join(ElementTree.parse(files[1]).getroot().itertext())
    assert all(title in drawn for title in [*WANTED, "one: 40 steps"])
    both = plot_runs([one, two], tmp_path / "out" / "both.png")
    assert [file.name for file in both] == ["both.png", "both.svg"]
    assert all(name in both[1].read_text() for name in ("one", "two"))
    again = plot_runs([one, two], tmp_path / "again.svg")
    assert again[1].read_bytes() == both[1].read_bytes(), "the same numbers give the same file"


def test_plot_rejects_a_run_without_data(tmp_path: Path) -> None:
    make(tmp_path / "run", 3)
    (tmp_path / "run" / "metrics.jsonl").unlink()
    (tmp_path / "run" / "evals.jsonl").unlink()
    with pytest.raises(ConfigError, match="nothing to draw yet"):
        plot_runs([tmp_path / "run"], None)
    with pytest.raises(ConfigError, match="is not a run directory"):
        plot_runs([tmp_path], None)
