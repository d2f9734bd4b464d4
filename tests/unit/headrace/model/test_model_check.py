"""A model folder that cannot work is refused with the file at fault."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headrace.model.model_check import check_model
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.errors import ConfigError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path / "m", character_tokenizer("01"), Shape(layers=1, hidden=8), seed=0)
    return tmp_path / "m"


def test_a_whole_folder_tells_its_facts(model: Path) -> None:
    facts = check_model(model, engine="torch")
    assert (facts.family, facts.context_length, facts.vocab_size) == ("qwen3", 64, 4)


def config(model: Path, **values: object) -> None:
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def truncate(model: Path) -> None:
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


INDEX = "model.safetensors.index.json"


def index(model: Path, file: str) -> None:
    (model / INDEX).write_text(json.dumps({"weight_map": {"x": file}}))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda m: (m / "config.json").unlink(), "config.json does not exist"),
        (lambda m: (m / "config.json").write_text("{"), "config.json: not valid JSON"),
        (lambda m: (m / "tokenizer.json").unlink(), "has no tokenizer"),
        (lambda m: (m / "model.safetensors").rename(m / "pytorch_model.bin"), "pytorch_model.bin is not read"),
        (truncate, "not a whole safetensors file"),
        (lambda m: config(m, model_type="gpt2"), "model_type 'gpt2' is not supported by the torch engine"),
        (lambda m: config(m, max_position_embeddings=None), '"max_position_embeddings" must be a positive integer'),
        (lambda m: index(m, "gone.safetensors"), "gone.safetensors does not exist"),
        (lambda m: index(m, "/etc/shadow"), "/etc/shadow is outside of the folder"),
        (lambda m: index(m, "../other/model.safetensors"), "is outside of the folder"),
        (lambda m: index(m, "in/../../model.safetensors"), "is outside of the folder"),
        (lambda m: (m / INDEX).write_text('{"weight_map": {}}'), "no file is named"),
        (lambda m: (m / INDEX).write_text('{"weight_map": {"x": 5}}'), "cannot be read"),
    ],
)
def test_each_defect_of_a_model_folder_is_named(model: Path, damage: Callable[[Path], object], told: str) -> None:
    damage(model)
    with pytest.raises(ConfigError, match=told.replace("(", r"\(")):
        check_model(model, engine="torch")


def weights(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = model / "model.safetensors"
    found = load_file(file)
    change(found)
    save_file(found, file, metadata={"format": "pt"})


HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("nested", [True, False])
def test_a_head_of_its_own_beside_a_tied_config_is_refused(model: Path, dtype: torch.dtype, nested: bool) -> None:
    weights(model, lambda w: w.update({name: w[EMBEDDING].to(dtype, copy=True) for name in (HEAD, EMBEDDING)}))
    if nested:
        text = json.loads((model / "config.json").read_text())
        config(model, tie_word_embeddings=None, text_config=text)
    check_model(model, engine="torch")  # A copy of the embedding is none.
    weights(model, lambda w: w[HEAD][-1].mul_(2))
    with pytest.raises(ConfigError, match=r"an lm_head.weight other than the embedding.*false.*out of the file"):
        check_model(model, engine="torch")
    config(model, tie_word_embeddings=False)
    check_model(model, engine="torch")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_scan_names_the_tensor_that_holds_no_numbers(
    model: Path, dtype: torch.dtype, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.model.weight_scan._BLOCK", 5)
    weights(model, lambda w: w.update({name: tensor.to(dtype) for name, tensor in w.items()}))
    check_model(model, engine="torch", scan=True)
    weights(model, lambda w: w["model.layers.0.mlp.up_proj.weight"].view(-1)[-1:].fill_(value))
    check_model(model, engine="torch")
    with pytest.raises(
        ConfigError, match=r"model\.safetensors: model\.layers\.0\.mlp\.up_proj\.weight holds NaN or inf"
    ):
        check_model(model, engine="torch", scan=True)


def test_a_snapshot_of_symlinks_is_read_through_its_index(model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").rename(tmp_path / "blob")
    (model / "model-00001-of-00001.safetensors").symlink_to("../blob")
    index(model, "model-00001-of-00001.safetensors")
    check_model(model, engine="torch", scan=True)


def test_sglang_takes_architectures_that_the_torch_engine_does_not_know(model: Path) -> None:
    config(model, model_type="gemma3_text")
    with pytest.raises(ConfigError, match="not supported by the torch engine"):
        check_model(model, engine="torch")
    assert check_model(model, engine="sglang").family == "gemma3_text"
