"""Checks that the trainer and the engine can use a model folder, without torch or transformers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.model.weight_scan import is_finite, same_values, stored_weights
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.model_files import indexed_weights

FAMILIES = ("llama", "qwen2", "qwen3")
"""`model_type`s that the embedded torch engine decodes."""

_HEAD, _EMBEDDING = ".lm_head.weight", ".embed_tokens.weight"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts of a model that the rest of the preparation needs."""

    path: Path
    family: str
    context_length: int
    vocab_size: int
    heads: int
    """Attention heads; 0 = the config names none."""


def check_model(path: Path, *, engine: str, scan: bool = False) -> ModelFacts:
    """Checks the folder; a `scan` reads all weights, for NaN.

    Raises ConfigError naming the file that is missing or wrong, and the fix.
    """
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise ConfigError(f"the model folder {path} {what}; give a folder saved by save_pretrained")
    config = _config(path)
    family = str(config.get("model_type", ""))
    if engine == "torch" and family not in FAMILIES:
        raise ConfigError(
            f"{path / 'config.json'}: model_type {family!r} is not supported by the torch engine "
            f"({', '.join(FAMILIES)}); choose a model of one of these"
        )
    text = config.get("text_config", config)
    context, vocabulary = text.get("max_position_embeddings"), text.get("vocab_size")
    for key, value in (("max_position_embeddings", context), ("vocab_size", vocabulary)):
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f'{path / "config.json"}: "{key}" must be a positive integer, not {value!r}')
    _check_weights(path, config, scan=scan)
    if not any((path / name).is_file() for name in _TOKENIZER_FILES):
        raise ConfigError(
            f"{path} has no tokenizer (none of {', '.join(_TOKENIZER_FILES)}); "
            "save it there with tokenizer.save_pretrained"
        )
    return ModelFacts(path, family, int(context), int(vocabulary), int(text.get("num_attention_heads") or 0))


def scoring_context(path: Path) -> int | None:
    """Longest sequence of a scoring model; `path` is its folder, or the folder of a discriminator's versions.

    None if it cannot be read: the scorer itself reports other faults of the folder.
    """
    try:
        current = path / "current"
        folder = path / current.read_text(encoding="utf-8").split()[0] if current.is_file() else path
        config = _config(folder)
        context = config.get("text_config", config).get("max_position_embeddings")
    except (ConfigError, OSError, ValueError, IndexError, AttributeError):
        return None
    return context if isinstance(context, int) else None


def _config(path: Path) -> dict[str, Any]:
    return _json_object(path / "config.json", "a model folder needs one")


def _json_object(file: Path, why: str) -> dict[str, object]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist; {why}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: must be a JSON object")
    return value


def _check_weights(path: Path, config: dict[str, Any], *, scan: bool) -> None:
    files = sorted(set((indexed_weights(path) or {"": path / "model.safetensors"}).values()))
    for file in files:
        _check_safetensors(file)
    tensors = [one for file in files for one in stored_weights(file)]
    head, embedding = ([one for one in tensors if f".{one.name}".endswith(end)] for end in (_HEAD, _EMBEDDING))
    text, given = config.get("text_config", config), config.get("tie_word_embeddings")
    tied = text.get("tie_word_embeddings") if given is None else given
    if tied and head and embedding and not same_values(head[0], embedding[0]):
        raise ConfigError(
            f'{path / "config.json"}: "tie_word_embeddings" is true, but {head[0].file.name} has an lm_head.weight '
            "other than the embedding: the trainer would use it, and engines would not. Set it to false, if the model "
            "was trained with this head, or take the tensor out of the file"
        )
    for one in tensors if scan else ():
        if not is_finite(one):
            raise ConfigError(
                f"{one.file}: {one.name} holds NaN or infinity, and so would all that the model computes: copy or "
                "download it again, or take an earlier checkpoint"
            )


def _check_safetensors(file: Path) -> None:
    """Checks the header, and the file's length against it, which catches a truncated download."""
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        others = sorted(p.name for p in file.parent.glob("*.bin")) + sorted(p.name for p in file.parent.glob("*.pt"))
        hint = f"; {others[0]} is not read, save the model with safe_serialization" if others else ""
        raise ConfigError(f"{file} does not exist{hint}")
    try:
        with safe_open(file, framework="numpy") as tensors:
            tensors.keys()
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{file}: not a whole safetensors file: {error}") from None
