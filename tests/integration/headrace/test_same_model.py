"""A resumed run is refused where its model is another one than at its first start, and the difference counts."""

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
LORA = ("--model.lora.rank", "2")
REFERENCE = ("--algorithm.kl-coef", "0.1")
CHARACTERS = "0123456789+="


def model(folder: Path, characters: str = CHARACTERS, seed: int = 0) -> Path:
    write_model(folder, character_tokenizer(characters), TINY, seed=seed)
    return folder


def prepared(folder: Path, *arguments: str, resume: bool = False, of: Path | None = None, text: str = "") -> None:
    """A dry run's preparation of `folder / "run"`."""
    (folder / "p.jsonl").write_text("".join(f'{{"prompt": "{n}+1=", "answer": "{n + 1}"}}\n' for n in range(4)))
    (folder / "run.toml").write_text((text or f'[model]\npath = "{of or folder / "model"}"\n') + REST)
    resolved = resolve(folder / "run.toml", arguments=arguments)
    prepare = prepare_run if resolved.config.run.stage == "rl" else prepare_stage
    prepare(resolved, folder / "run", resume=resume, environment=os.environ, dry_run=True).held.close()


def begin(folder: Path, *arguments: str, checkpoint: bool = True, text: str = "") -> RunPaths:
    """A run that has begun, as far as a resume looks."""
    run = RunPaths(folder / "run")
    prepared(folder, *arguments, text=text)
    (run.checkpoint(1) if checkpoint else run.checkpoints).mkdir(parents=True)
    run.journal.mkdir()
    return run


@pytest.mark.parametrize("stage", ["rl", "sft"])
def test_another_tokenizer_is_refused_and_a_moved_folder_is_not(tmp_path: Path, stage: str) -> None:
    model(tmp_path / "model")
    arguments = ("--run.stage", stage)
    run = begin(tmp_path, *arguments)
    assert recorded_model(run.path) == read_model_files(tmp_path / "model")
    before = {path: path.read_bytes() for path in run.config.iterdir()}
    moved = (tmp_path / "model").rename(tmp_path / "moved")
    prepared(tmp_path, *arguments, resume=True, of=moved)
    other = model(tmp_path / "other", "1234567890+=")
    with pytest.raises(ConfigError, match=r"other/tokenizer\.json has changed since the run's first start: restore it"):
        prepared(tmp_path, *arguments, resume=True, of=other)
    assert before[run.model_files] == run.model_files.read_bytes() and before.keys() == set(run.config.iterdir())
    assert not run.staging.exists()


@pytest.mark.parametrize("arguments", [LORA, REFERENCE])
def test_other_weights_under_adapters_or_of_a_reference_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    model(tmp_path / "model")
    begin(tmp_path, *arguments)
    prepared(tmp_path, *arguments, resume=True)
    model(tmp_path / "model", seed=1)
    with pytest.raises(ConfigError, match=r"model/model\.safetensors has changed"):
        prepared(tmp_path, *arguments, resume=True)
