"""Is this server one we can drive, with the model we train? Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.rollout.engines.sglang.requests import Limits
from wire.errors import ConfigError

OLDEST, NEWEST = (0, 5, 21), (0, 6, 0)
"""Versions from the first to before the second: update sessions came with 0.5.21."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a model folder's config says."""

    family: str
    architectures: tuple[str, ...]
    vocab: int
    context_length: int


def read_shape(folder: Path) -> ModelShape:
    """Of `folder`/config.json; raises ConfigError."""
    try:
        config = json.loads((folder / "config.json").read_text())
        text = config.get("text_config", config)
        return ModelShape(
            family=str(config["model_type"]),
            architectures=tuple(config.get("architectures") or ()),
            vocab=int(text["vocab_size"]),
            context_length=int(text["max_position_embeddings"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"model.path: {folder / 'config.json'}: {error!r}") from error


def check_server(
    server: Mapping[str, Any],
    model: Mapping[str, Any],
    shape: ModelShape,
    *,
    tp: int,
    dtype: str,
    fp32_head: bool,
    context_length: int,
    deterministic: bool,
) -> Limits:
    """The server's limits; raises ConfigError naming what does not fit and the way out.

    `server` and `model` are the answers of `/server_info` and `/model_info`; `context_length` 0 = the model's.
    """
    version = str(server.get("version", ""))
    if not OLDEST <= _numbers(version) < NEWEST:
        raise ConfigError(
            f"SGLang {version or 'of no version'} is not supported: {_text(OLDEST)} or newer, below {_text(NEWEST)}"
        )
    for key, wanted in (("dp_size", 1), ("pp_size", 1), ("tp_size", tp)):
        if server.get(key) != wanted:
            raise ConfigError(f"the SGLang server has {key} {server.get(key)}, it must be {wanted}{_HINTS[key]}")
    if server.get("dtype") not in (dtype, "auto"):
        raise ConfigError(f"the SGLang server's dtype is {server.get('dtype')}, model.dtype is {dtype}")
    if dtype != "float32" and bool(server.get("enable_fp32_lm_head")) != fp32_head:
        raise ConfigError(
            f"model.fp32_head is {fp32_head}, the SGLang server was started otherwise: start it "
            f"{'with' if fp32_head else 'without'} --enable-fp32-lm-head"
        )
    if server.get("quantization") or server.get("speculative_algorithm"):
        raise ConfigError("the SGLang server quantizes or speculates: its logprobs would not be the trainer's")
    if bool(server.get("enable_deterministic_inference")) != deterministic:
        raise ConfigError(f"rollout.deterministic is {deterministic}, the SGLang server was started otherwise")
    if model.get("model_type") != shape.family or tuple(model.get("architectures") or ()) != shape.architectures:
        raise ConfigError(
            f"the SGLang server serves a {model.get('model_type')} model ({model.get('model_path')}), "
            f"model.path is a {shape.family} model"
        )
    context = _context(server, shape, context_length)
    return Limits(
        vocab=shape.vocab,
        context_length=context,
        # SGLang's number is the first that is too long.
        prompt_length=min(context, _positive(server, "max_req_input_len")) - 1,
        max_requests=_positive(server, "max_running_requests"),
        deterministic=deterministic,
        priorities=bool(server.get("enable_priority_scheduling")),
        plain_experts=_plain_experts(server),
    )


_HINTS = {"dp_size": "; use one replica for each", "pp_size": "", "tp_size": " (rollout.sglang.tp)"}


def _plain_experts(server: Mapping[str, Any]) -> bool:
    """Whether its kernels take experts in bfloat16 as they are loaded, every rank a part of each of them.

    SGLang 0.5.23, `layers/quantization/unquant.py`: with `auto`, where nothing has resolved it, as with `triton`, a GPU
    gets Triton's kernels (1181-1192), for which nothing is moved after loading (862-926). The others transpose (803),
    swap gate and up (1227) or pack blocks (972-992). `SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED`, off by default, interleaves
    rows (936): such a server is found out by what it has loaded.
    """
    kernels, dispatch = server.get("moe_runner_backend"), server.get("moe_a2a_backend")
    return kernels in ("auto", "triton") and dispatch in (None, "none") and server.get("ep_size", 1) == 1


def _context(server: Mapping[str, Any], shape: ModelShape, wanted: int) -> int:
    own = server.get("context_length") or shape.context_length
    if wanted > own:
        raise ConfigError(f"rollout.context_length: {wanted} is beyond the {own} positions of the SGLang server")
    # One request must fit into the cache alone; SGLang keeps a few tokens of it to itself.
    return min(wanted or own, _positive(server, "max_total_num_tokens") - 16)


def _positive(server: Mapping[str, Any], key: str) -> int:
    value = server.get(key)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"the SGLang server says {key} = {value!r}")
    return value


def _numbers(version: str) -> tuple[int, ...]:
    """`0.5.23.post1` -> (0, 5, 23)."""
    found = []
    for part in version.split(".")[:3]:
        if not part.isdecimal():
            return ()
        found.append(int(part))
    return tuple(found)


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
