"""A model folder that cannot work is refused with the file at fault."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.model.model_check import check_model, scoring_context
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
        (
            lambda m: (m / "model.safetensors.index.json").write_text('{"weight_map": {"x": "gone.safetensors"}}'),
            "gone.safetensors does not exist",
        ),
    ],
)
def test_what_is_wrong_is_named(model: Path, damage: Callable[[Path], object], told: str) -> None:
    damage(model)
    with pytest.raises(ConfigError, match=told.replace("(", r"\(")):
        check_model(model, engine="torch")


def test_an_absent_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        check_model(tmp_path / "m", engine="torch")


def test_sglang_takes_architectures_that_the_torch_engine_does_not_know(model: Path) -> None:
    config(model, model_type="gemma3_text")
    with pytest.raises(ConfigError, match="not supported by the torch engine"):
        check_model(model, engine="torch")
    assert check_model(model, engine="sglang").family == "gemma3_text"


def test_the_longest_sequence_of_a_model_that_scores(model: Path, tmp_path: Path) -> None:
    assert scoring_context(model) == 64
    config(model, text_config={"max_position_embeddings": 32})
    assert scoring_context(model) == 32
    versions = tmp_path / "discriminator"
    versions.mkdir()
    assert scoring_context(versions) is None
    model.rename(versions / "version-000007")
    (versions / "current").write_text(f"version-000007 {'0' * 64}\n")
    assert scoring_context(versions) == 32
    (versions / "current").write_text("")
    assert scoring_context(versions) is None
    config(versions / "version-000007", text_config=None)
    assert scoring_context(versions / "version-000007") is None
