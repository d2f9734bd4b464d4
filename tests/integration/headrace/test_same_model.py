"""A resume with another model than at the run's first start is refused."""

import os
from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.run.launch import prepare_run
from headrace.run.offline import prepare_stage
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import read_model_files, recorded_model

TINY = Shape(hidden=16, intermediate=32, layers=1, heads=2, kv_heads=1, head_dim=8)
REST = '[data]\npath = "p.jsonl"\n[rollout.sampling]\nmax_tokens = 4\n'


def model(folder: Path, characters: str = "0123456789+=") -> Path:
    write_model(folder, character_tokenizer(characters), TINY, seed=0)
    return folder


def prepared(folder: Path, stage: str, model: Path, *, resume: bool) -> None:
    """A dry run's preparation of `folder / "run"`."""
    (folder / "p.jsonl").write_text("".join(f'{{"prompt": "{n}+1=", "answer": "{n + 1}"}}\n' for n in range(4)))
    (folder / "run.toml").write_text(f'[model]\npath = "{model}"\n{REST}')
    prepare = prepare_run if stage == "rl" else prepare_stage
    resolved = resolve(folder / "run.toml", arguments=["--run.stage", stage])
    prepare(resolved, folder / "run", resume=resume, environment=os.environ, dry_run=True).held.close()


@pytest.mark.parametrize("stage", ["rl", "sft"])
def test_a_resume_refuses_another_tokenizer_and_accepts_a_moved_folder(tmp_path: Path, stage: str) -> None:
    run = RunPaths(tmp_path / "run")
    prepared(tmp_path, stage, model(tmp_path / "model"), resume=False)
    for folder in (run.checkpoint(1), run.journal):  # It has begun, as far as a resume looks.
        folder.mkdir(parents=True)
    assert recorded_model(run.path) == read_model_files(tmp_path / "model")
    before = {path: path.read_bytes() for path in run.config.iterdir()}
    moved = (tmp_path / "model").rename(tmp_path / "moved")
    prepared(tmp_path, stage, moved, resume=True)
    other = model(tmp_path / "other", "1234567890+=")
    with pytest.raises(ConfigError, match=r"other/tokenizer\.json has changed since the run's first start: restore it"):
        prepared(tmp_path, stage, other, resume=True)
    assert before[run.model_files] == run.model_files.read_bytes() and before.keys() == set(run.config.iterdir())
    assert not run.staging.exists()
