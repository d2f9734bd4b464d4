"""Checks that a server is supported and serves the model being trained. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.services.rollout.engines.sglang.requests import ServerLimits
from headrace.wire.errors import ConfigError

OLDEST, NEWEST = (0, 5, 21), (0, 6, 0)
"""Supported versions: from the first (inclusive; it introduced update sessions) to the second (exclusive)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModelShape:
    """The parts of a model folder's config that the checks need."""

    family: str
    architectures: tuple[str, ...]
    vocab: int
    context_length: int


def read_shape(folder: Path) -> ServedModelShape:
    """Reads `folder`/config.json; raises ConfigError if it is unusable."""
    try:
        config = json.loads((folder / "config.json").read_text())
        text = config.get("text_config", config)
        return ServedModelShape(
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
    shape: ServedModelShape,
    *,
    tp: int,
    dtype: str,
    fp32_head: bool,
    context_length: int,
    deterministic: bool,
    most_kept: int = 0,
) -> ServerLimits:
    """Returns the server's limits; raises ConfigError naming what does not match and how to fix it.

    `server` and `model` are the answers of `/server_info` and `/model_info`; `context_length` 0 = the model's;
    `most_kept`: the most ids that a token of the run is drawn from, 0 = nothing is cut off.
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
            f"model.fp32_head is {fp32_head}, but the SGLang server was started differently: start it "
            f"{'with' if fp32_head else 'without'} --enable-fp32-lm-head"
        )
    if server.get("quantization") or server.get("speculative_algorithm"):
        raise ConfigError("the SGLang server quantizes or speculates: its logprobs would not be the trainer's")
    if server.get("preferred_sampling_params"):
        raise ConfigError(
            f"the SGLang server has --preferred-sampling-params {server['preferred_sampling_params']}, which change "
            "what is drawn and not the logprobs that are trained: start it without"
        )
    # Ties with the last id are kept too.
    if most_kept and most_kept >= (server.get(_MASK_LIMIT) or 0):
        raise ConfigError(
            f"rollout.sampling draws from up to {most_kept} ids, but the SGLang server has {_MASK_LIMIT} = "
            f"{server.get(_MASK_LIMIT, 'not at all')}: start it with a larger --sampling-mask-max-tokens, update "
            "SGLang (0.5.23 has it), or lower rollout.sampling.top_k"
        )
    if bool(server.get("enable_deterministic_inference")) != deterministic:
        raise ConfigError(f"rollout.deterministic is {deterministic}, but the SGLang server was started differently")
    if model.get("model_type") != shape.family or tuple(model.get("architectures") or ()) != shape.architectures:
        raise ConfigError(
            f"the SGLang server serves a {model.get('model_type')} model ({model.get('model_path')}), "
            f"model.path is a {shape.family} model"
        )
    context = _context(server, shape, context_length)
    return ServerLimits(
        vocab=shape.vocab,
        context_length=context,
        # SGLang's number is the smallest length that is too long.
        prompt_length=min(context, _positive(server, "max_req_input_len")) - 1,
        max_requests=_max_requests(server),
        deterministic=deterministic,
        priorities=bool(server.get("enable_priority_scheduling")),
        plain_experts=_plain_experts(server),
    )


_MASK_LIMIT = "sampling_mask_max_tokens"
_HINTS = {"dp_size": "; use one replica for each", "pp_size": "", "tp_size": " (rollout.sglang.tp)"}


def _plain_experts(server: Mapping[str, object]) -> bool:
    """Whether its kernels use bfloat16 experts in the layout in which they are loaded, each sharded over all ranks.

    SGLang 0.5.23, `layers/quantization/unquant.py`: with an unresolved `auto`, as with `triton`, a GPU gets Triton's
    kernels (1181-1192), which leave the loaded layout unchanged (862-926). The others transpose (803), swap gate and up
    (1227) or pack blocks (972-992). `SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED`, off by default, interleaves rows (936): such
    a server is detected by the checksums of what it has loaded.
    """
    kernels, dispatch = server.get("moe_runner_backend"), server.get("moe_a2a_backend")
    return kernels in ("auto", "triton") and dispatch in (None, "none") and server.get("ep_size", 1) == 1


def _context(server: Mapping[str, Any], shape: ServedModelShape, wanted: int) -> int:
    own = server.get("context_length") or shape.context_length
    if wanted > own:
        raise ConfigError(f"rollout.context_length: {wanted} is beyond the {own} positions of the SGLang server")
    # A single request must fit into the cache, of which SGLang reserves a few tokens.
    return min(wanted or own, _positive(server, "max_total_num_tokens") - 16)


def _max_requests(server: Mapping[str, Any]) -> int:
    """What the scheduler admits: the flag is null where it was not given, and the size of the cache limits it.

    SGLang 0.5.23, `managers/scheduler_components/internal_state.py`, 73.
    """
    key = "effective_max_running_requests_per_dp"
    states = server.get("internal_states") or [{}]
    return _positive(states[0], key) if states[0].get(key) else _positive(server, "max_running_requests")


def _positive(server: Mapping[str, object], key: str) -> int:
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
