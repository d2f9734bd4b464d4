"""A model by its id on the Hub is fetched once, pinned to its commit, and kept by a resume."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.config.resolve import resolve, resolved_tables
from headrace.inspect.differences import differences
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.run.launch import PreparedRun, prepare_run
from headrace.wire.errors import ConfigError
from tests.hub import Hub, running

NAME = "owner/tiny-1.5"
REST = '[data]\npath = "p.jsonl"\n[rollout.sampling]\nmax_tokens = 4\n'
TINY = Shape(hidden=16, intermediate=32, layers=1, heads=2, kv_heads=1, head_dim=8)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as found:
        yield found


def model(folder: Path, seed: int = 0) -> Path:
    write_model(folder, character_tokenizer("0123456789+="), TINY, seed=seed)
    (folder / "pytorch_model.bin").write_bytes(b"not fetched")
    return folder


def prepared(
    folder: Path, hub: Hub, *arguments: str, name: str = NAME, resume: bool = False, **more: str
) -> PreparedRun:
    """A dry run's preparation; `more` of the environment."""
    (folder / "p.jsonl").write_text("".join(f'{{"prompt": "{n}+1=", "answer": "{n + 1}"}}\n' for n in range(4)))
    (folder / "run.toml").write_text(f'[model]\npath = "{name}"\n{REST}')
    resolved = resolve(folder / "run.toml", arguments=arguments)
    environment = {**os.environ, **hub.environment(folder / "home"), **more}
    found = prepare_run(resolved, folder / "run", resume=resume, environment=environment, dry_run=True)
    found.lock.release()
    return found


def test_a_model_of_the_hub_is_fetched_and_pinned(hub: Hub, tmp_path: Path) -> None:
    commit = hub.put(NAME, model(tmp_path / "v1"), "main")
    table = prepared(tmp_path, hub).config.model
    assert (table.hub, table.revision, table.path.name) == (NAME, commit, commit)
    fetched = {path.name for path in table.path.iterdir()}
    assert fetched == {path.name for path in (tmp_path / "v1").iterdir()} - {"pytorch_model.bin"}
    assert (table.path / "model.safetensors").read_bytes() == (tmp_path / "v1" / "model.safetensors").read_bytes()
    for service in ("trainer", "rollout-0"):
        told = json.loads((tmp_path / "run" / "config" / f"{service}.json").read_text())["model"]
        assert told["path"] == str(table.path) and "hub" not in told
    keys = {one.key: one.values for one in differences([resolved_tables(tmp_path / "run.toml"),
                                                         resolved_tables(tmp_path / "run")])}  # fmt: skip
    assert keys == {"model.revision": ("", commit)}


def test_rejections_by_the_hub_are_reported(hub: Hub, tmp_path: Path) -> None:
    hub.put(NAME, model(tmp_path / "v1"), "main")
    with pytest.raises(ConfigError, match=r"no such folder, and no model 'owner/other' on the Hub .* set HF_TOKEN"):
        prepared(tmp_path, hub, name="owner/other")
    with pytest.raises(ConfigError, match=r"has no revision 'v9'"):
        prepared(tmp_path, hub, "--model.revision", "v9")
    (tmp_path / "v1" / "model.safetensors").rename(tmp_path / "v1" / "model.gguf")
    with pytest.raises(ConfigError, match="no safetensors file"):
        prepared(tmp_path, hub)
    assert not (tmp_path / "run").exists()


def test_an_existing_folder_takes_precedence_over_a_hub_id(hub: Hub, tmp_path: Path) -> None:
    model(tmp_path / "owner" / "tiny-1.5")
    assert prepared(tmp_path, hub).config.model.path == tmp_path / "owner" / "tiny-1.5"
    assert hub.asked == []
