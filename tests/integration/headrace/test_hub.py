"""A model by its id on the Hub is fetched once, pinned to its commit, and kept by a resume."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.config.diff import differences, resolved_tables
from headrace.config.resolve import resolve
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


@pytest.mark.long
def test_a_resumed_run_keeps_its_commit_and_gets_its_folder_again(hub: Hub, tmp_path: Path) -> None:
    first = hub.put(NAME, model(tmp_path / "v1"), "main")
    begun = prepared(tmp_path, hub)
    second = hub.put(NAME, model(tmp_path / "v2", seed=1), "main")
    assert second != first
    assert prepared(tmp_path, hub, resume=True).config.model.path == begun.config.model.path
    shutil.rmtree(tmp_path / "home")
    kept = resolve(tmp_path / "run" / "config" / "run.toml")
    assert kept.config.model.hub_id is None
    again = prepared(tmp_path, hub, resume=True).config.model
    assert again.path.is_dir() and again.revision == first
    shutil.rmtree(tmp_path / "run")
    assert prepared(tmp_path, hub).config.model.revision == second
    shutil.rmtree(tmp_path / "run")
    assert prepared(tmp_path, hub, "--model.revision", first).config.model.revision == first


@pytest.mark.long
def test_without_a_network_what_was_fetched_serves_and_else_the_command_is_named(tmp_path: Path) -> None:
    with running() as hub:
        hub.put(NAME, model(tmp_path / "v1"), "main")
        path = prepared(tmp_path, hub).config.model.path
    shutil.rmtree(tmp_path / "run")
    assert prepared(tmp_path, hub).config.model.path == path, "the Hub is gone, the cache is not"
    (path / "model.safetensors").unlink()
    for name, more in ((NAME, {}), ("owner/other", {}), ("owner/other", {"HF_HUB_OFFLINE": "1"})):
        with pytest.raises(ConfigError, match=rf"run.toml:2: .*`hf download {name} --revision main`") as caught:
            prepared(tmp_path, hub, name=name, resume=False, **more)
        assert str(tmp_path / "home") in str(caught.value)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)


def test_what_the_hub_refuses_is_said(hub: Hub, tmp_path: Path) -> None:
    hub.put(NAME, model(tmp_path / "v1"), "main")
    with pytest.raises(ConfigError, match=r"no such folder, and no model 'owner/other' on the Hub .* set HF_TOKEN"):
        prepared(tmp_path, hub, name="owner/other")
    with pytest.raises(ConfigError, match=r"has no revision 'v9'"):
        prepared(tmp_path, hub, "--model.revision", "v9")
    (tmp_path / "v1" / "model.safetensors").rename(tmp_path / "v1" / "model.gguf")
    with pytest.raises(ConfigError, match="no safetensors file"):
        prepared(tmp_path, hub)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_gated_model_needs_the_token(tmp_path: Path) -> None:
    with running(token="hf_secret") as hub:
        hub.put(NAME, model(tmp_path / "v1"), "main")
        with pytest.raises(ConfigError, match=r"owner/tiny-1\.5 is gated: accept its terms .* set HF_TOKEN"):
            prepared(tmp_path, hub)
        assert prepared(tmp_path, hub, HF_TOKEN="hf_secret").config.model.hub == NAME
        shutil.rmtree(tmp_path / "run")
        shutil.rmtree(tmp_path / "home")
        (tmp_path / "token").write_text("hf_secret\n")
        prepared(tmp_path, hub, HF_TOKEN_PATH=str(tmp_path / "token"))
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"hf_secret" not in file.read_bytes()


def test_a_folder_that_is_there_is_no_id(hub: Hub, tmp_path: Path) -> None:
    model(tmp_path / "owner" / "tiny-1.5")
    assert prepared(tmp_path, hub).config.model.path == tmp_path / "owner" / "tiny-1.5"
    assert hub.asked == []
