"""Tiny Qwen3 models with random weights, made with numpy and `tokenizers` alone: no torch, no download."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from headrace.config.resolve import DATA_SUFFIXES
from headrace.data.rows import DataRow, read_rows
from headrace.wire.config.nearest import unknown
from headrace.wire.errors import ConfigError, DataError

PAD, END = "<pad>", "<end>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    + END
    + "{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}"
)
"""Roles, and calls as Hermes has them. Not the schemas of tools: they would take most of a tiny model's context."""
_INIT_STD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a Qwen3 model; the defaults make 0.6 million parameters besides the embedding."""

    hidden: int = 128
    intermediate: int = 384
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    context: int = 64


def character_tokenizer(characters: str) -> Tokenizer:
    """One token a character, in the order given, after padding and end."""
    vocabulary = {token: index for index, token in enumerate((PAD, END, *characters))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def bpe_tokenizer(texts: Iterator[str], *, vocab_size: int) -> Tokenizer:
    """Byte-level BPE learned from the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_model(folder: Path, tokenizer: Tokenizer, shape: Shape, *, seed: int, chat_template: str = "") -> None:
    """Writes a folder that `AutoModelForCausalLM` and `AutoTokenizer` load."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab_size = tokenizer.get_vocab_size()
    ids = {"pad_token_id": tokenizer.token_to_id(PAD), "eos_token_id": tokenizer.token_to_id(END)}
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": shape.context,
    }
    if chat_template:
        special["chat_template"] = chat_template
    for name, values in (
        ("tokenizer_config.json", special),
        ("config.json", _config(vocab_size, shape) | ids),
        ("generation_config.json", ids),
    ):
        (folder / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    save_file(_weights(vocab_size, shape, seed), folder / "model.safetensors", metadata={"format": "pt"})


def make_text_model(source: Path, columns: tuple[str, ...], out: Path, *, vocab_size: int, seed: int) -> None:
    """A model whose BPE tokenizer is learned from a text file, or from columns of a data file.

    Raises DataError, and ConfigError for an `out` that cannot be made, or is there and no empty folder.
    """
    _check_free(out)
    texts = read_texts(source, columns)
    if not any(texts):
        raise DataError(f"{source}: there is no text to learn from")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise ConfigError(f"{out} cannot be made ({error.strerror}): choose another folder with --out") from error
    tokenizer = bpe_tokenizer(iter(texts), vocab_size=vocab_size)
    write_model(out, tokenizer, Shape(context=1024), seed=seed, chat_template=CHAT_TEMPLATE)


def _check_free(out: Path) -> None:
    way_out = "choose a new folder with --out, or remove this one"
    try:
        if out.exists() and not out.is_dir():
            raise ConfigError(f"{out} is a file: {way_out}")
        found = min((path.name for path in out.iterdir()), default="") if out.exists() else ""
    except OSError as error:
        raise ConfigError(f"{out} cannot be read ({error.strerror}): {way_out}") from error
    if found:
        raise ConfigError(f"{out} is not empty ({found}): {way_out}")


def read_texts(source: Path, columns: tuple[str, ...]) -> list[str]:
    """Columns of a data file (none named: all texts and messages), or the lines of a text file. Raises DataError."""
    if not source.name.endswith(DATA_SUFFIXES):
        try:
            return source.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{source}: cannot be read: {error}") from None
    return [text for row in read_rows(str(source), subset="", split="") for text in _texts(row, columns)]


def _texts(row: DataRow | DataError, columns: tuple[str, ...]) -> list[str]:
    if isinstance(row, DataError):
        raise row
    if missing := [name for name in columns if name not in row.values]:
        raise DataError(f"{row.place}: {unknown(missing[0], row.values)}, its columns")
    return [str(row.values[name]) for name in columns] or [one for value in row.values.values() for one in _said(value)]


def _said(value: object) -> list[str]:
    """A text, or those of messages."""
    if isinstance(value, list):
        return [one for message in value if isinstance(message, dict) for one in _said(message.get("content"))]
    return [value] if isinstance(value, str) else []


def _config(vocab_size: int, shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "initializer_range": _INIT_STD,
        "use_cache": True,
        "dtype": "float32",
    }


def _weights(vocab_size: int, shape: Shape, seed: int) -> dict[str, NDArray[np.float32]]:
    """Normal matrices, norms of one; the output matrix is tied to the embedding."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return (random.standard_normal((rows, columns)) * _INIT_STD).astype(np.float32)

    def ones(size: int) -> NDArray[np.float32]:
        return np.ones(size, np.float32)

    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    weights = {"model.embed_tokens.weight": matrix(vocab_size, shape.hidden)}
    for layer in range(shape.layers):
        weights |= {
            f"model.layers.{layer}.{name}.weight": value
            for name, value in (
                ("self_attn.q_proj", matrix(query, shape.hidden)),
                ("self_attn.k_proj", matrix(key, shape.hidden)),
                ("self_attn.v_proj", matrix(key, shape.hidden)),
                ("self_attn.o_proj", matrix(shape.hidden, query)),
                ("self_attn.q_norm", ones(shape.head_dim)),
                ("self_attn.k_norm", ones(shape.head_dim)),
                ("mlp.gate_proj", matrix(shape.intermediate, shape.hidden)),
                ("mlp.up_proj", matrix(shape.intermediate, shape.hidden)),
                ("mlp.down_proj", matrix(shape.hidden, shape.intermediate)),
                ("input_layernorm", ones(shape.hidden)),
                ("post_attention_layernorm", ones(shape.hidden)),
            )
        }
    return weights | {"model.norm.weight": ones(shape.hidden)}
