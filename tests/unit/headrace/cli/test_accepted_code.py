"""`--accept-changed-code` is refused where it would accept nothing."""

from pathlib import Path

import pytest

from headrace.cli.app import run

CONFIG = '[model]\npath = "model"\n[data]\npath = "p.jsonl"\n'
OWN = '[algorithm]\nadvantage = "mine:function"\npath = "code"\n'


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (CONFIG + OWN, []),
        (CONFIG, ["--resume"]),
        (CONFIG, ["--resume", "--run.stage", "sft"]),
    ],
    ids=["no resume", "no code of one's own", "another stage"],
)
def test_there_is_nothing_to_accept(
    text: str,
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("headrace.cli.app.signal.signal", lambda *_: None)
    file = tmp_path / "run.toml"
    file.write_text(text)
    run_dir = tmp_path / "run"
    assert run(["train", str(file), "--run-dir", str(run_dir), "--accept-changed-code", *options]) == 2
    assert "--accept-changed-code is for --resume of a run with algorithm.path" in capsys.readouterr().err
    assert not run_dir.exists()
