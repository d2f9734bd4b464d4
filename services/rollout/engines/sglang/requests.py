"""Builds bodies of `/generate` requests and parses the answers into parts of rollouts. Pure.

A rollout may consist of several parts: an aborted request is continued by another one, with the tokens sampled so far
appended to the prompt.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.services.rollout.engines.protocol import Completion, GenerateRequest, GenerationError
from headrace.services.rollout.engines.sglang.client import BAD_ANSWER
from headrace.wire.contracts import FinishReason, IdLists, PolicyVersion, VersionSpan
from headrace.wire.contracts.messages import Logprobs, TokenIds
from headrace.wire.errors import ContractError

_SCORE_PRIORITY = 100
"""Above a rollout's 0 by more than the preemption threshold (10), so that a full server makes room."""
_NEUTRAL_TOP_K = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits and capabilities of the server."""

    vocab: int
    context_length: int
    """Tokens of prompt and completion together."""
    prompt_length: int
    """Tokens of the longest prompt, including completion tokens appended to continue a rollout."""
    max_requests: int
    """Requests decoded concurrently."""
    deterministic: bool = False
    priorities: bool = False
    """The server schedules requests by priority."""
    plain_experts: bool = False
    """Experts keep the memory layout in which they are loaded."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A low-rank adapter that the server has loaded."""

    name: str
    version: PolicyVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """The result of one request."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason | None
    """None: it was aborted and must be continued."""
    spans: tuple[tuple[int, PolicyVersion], ...]
    """(end of the span within this part's tokens, version it was sampled under)."""
    computed_tokens: int
    """Number of prompt tokens that were not in the cache."""
    cached_tokens: int
    """Number of prompt tokens that were."""
    kept: list[TokenIds] | None = None
    """The ids that each token was drawn from, ascending; None without a mask."""


def check_request(request: GenerateRequest, limits: ServerLimits) -> int:
    """Maximum tokens per rollout; raises ContractError for a request that this engine can never serve."""
    sampling, prompt = request.sampling, request.token_ids
    room = limits.context_length - len(prompt)
    if room < 1 or len(prompt) > limits.prompt_length:
        raise ContractError(
            "context_overflow",
            f"{request.group_id}: a prompt of {len(prompt)} tokens leaves no room in a context of "
            f"{limits.context_length} (rollout.context_length), {limits.prompt_length} is the longest",
        )
    # SGLang does not check token ids: one beyond the vocabulary crashes the whole server.
    highest = max(int(prompt.max()), *sampling.stop_token_ids, 0)
    if highest >= limits.vocab or min(sampling.stop_token_ids, default=0) < 0:
        raise ContractError("bad_tokens", f"{request.group_id}: token {highest} of a vocabulary of {limits.vocab}")
    if sampling.forced_lengths:
        raise ContractError("bad_sampling", "forced lengths are for the torch engine: SGLang cannot force a token")
    return min(sampling.max_tokens, room)


def generate_body(
    request: GenerateRequest,
    index: int,
    done: Sequence[int],
    most: int,
    limits: ServerLimits,
    *,
    request_id: str,
    salt: str,
    adapter: Adapter | None = None,
) -> dict[str, object]:
    """Body that continues rollout `index` after the tokens `done`, to at most `most` tokens in total."""
    sampling = request.sampling
    parameters: dict[str, object] = {
        "max_new_tokens": most - len(done),
        "temperature": 0.0 if index >= request.greedy_from else sampling.temperature,
        "top_p": sampling.top_p,
        # Finite, or a mask is refused: so it never exceeds the server's limit either, but for ties, which have room.
        "top_k": sampling.most_kept if request.keeps_ids(index) else sampling.top_k or _NEUTRAL_TOP_K,
        "min_p": sampling.min_p,
        "stop_token_ids": list(sampling.stop_token_ids),
        # With stop tokens, SGLang also stops at the tokenizer's and the model's own end tokens, which a run's stop
        # tokens include anyway. Without stop tokens, a rollout ends only by its length.
        "ignore_eos": not sampling.stop_token_ids,
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }
    if limits.deterministic:
        # Without this, every request of a deterministic server gets the same seed.
        parameters["sampling_seed"] = request.seeds[index]
    body = {
        "rid": request_id,
        "input_ids": [*request.token_ids.tolist(), *done],
        "sampling_params": parameters,
        "return_logprob": True,
        "stream": False,
    }
    if limits.priorities:
        body["priority"] = 0
    if request.keeps_ids(index):
        body["return_sampling_mask"] = True
    return body | _place(salt, adapter)


def _place(salt: str, adapter: Adapter | None) -> dict[str, str]:
    """Selects cache salt and adapter; SGLang caches the prefixes of each adapter separately."""
    found = {"extra_key": salt} if salt else {}
    return found | ({"lora_path": adapter.name} if adapter else {})


def score_body(
    token_ids: TokenIds, limits: ServerLimits, *, request_id: str, salt: str, adapter: Adapter | None = None
) -> dict[str, object]:
    """Body of a prefill that returns every logprob of the prompt, at temperature 1."""
    body = {
        "rid": request_id,
        "input_ids": token_ids.tolist(),
        "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "stream": False,
    }
    if limits.priorities:
        body["priority"] = _SCORE_PRIORITY
    return body | _place(salt, adapter)


def warm_up_body() -> dict[str, object]:
    """Body that exercises the code paths of canary and rollouts once: prompt logprobs, then sampled tokens."""
    return {
        "input_ids": [0] * 8,
        "sampling_params": {"max_new_tokens": 2, "temperature": 1.0, "ignore_eos": True},
        "return_logprob": True,
        "logprob_start_len": 0,
    }


def vocabulary_body(token: int) -> dict[str, object]:
    """Body of a request that is refused if and only if `token` is beyond the vocabulary."""
    return {
        "input_ids": [0],
        "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True,
        "token_ids_logprob": [token],
    }


def read_part(answer: Mapping[str, Any], adapter: Adapter | None = None, *, masked: bool = False) -> RequestResult:
    """Parses an answer of `/generate`; versions are the server's, or the adapter's if the request used one.

    With a mask, if it was `masked`, the logprobs are those of the cut-off distribution. Raises ContractError
    (`bad_answer`) for an inconsistent answer, or one that ended by an error of the server such as a mask beyond its
    limit; GenerationError for non-finite logprobs.
    """
    try:
        meta = answer["meta_info"]
        ids = [int(token) for token in answer["output_ids"]]
        entries = [(entry[0], int(entry[1])) for entry in meta.get("output_token_logprobs") or []]
        kind, failure = str(meta["finish_reason"]["type"]), meta["finish_reason"].get("status_code")
        masks = [np.sort(np.array(one, np.int32)) for one in meta.get("output_token_sampling_mask") or []]
        behaviour = meta.get("output_token_sampling_logprobs") or []
        versions = meta["weight_versions"] if adapter is None else _whole_span(len(ids), adapter)
        raw_spans = [(int(each["start"]), int(each["end"]), str(each["version"])) for each in versions]
        cached = int(meta.get("cached_tokens") or 0)
        computed = int(meta["prompt_tokens"]) - cached
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ContractError(BAD_ANSWER, f"/generate: {error!r}") from error
    if [token for _, token in entries] != ids:
        raise ContractError(BAD_ANSWER, f"/generate: {len(ids)} tokens, logprobs of {len(entries)} others")
    if failure is not None:
        # Not the abort of a request that goes on with other weights: that one has no status.
        raise ContractError(BAD_ANSWER, f"/generate: {failure} {meta['finish_reason'].get('message')}")
    if masked and not len(ids) == len(masks) == len(behaviour):
        raise ContractError(BAD_ANSWER, f"/generate: {len(ids)} tokens, sampling masks of {len(masks)}")
    if kind not in _FINISHED:
        raise ContractError(BAD_ANSWER, f"/generate: it ended by {kind!r}")
    if not ids and kind != "abort":
        raise ContractError(BAD_ANSWER, "/generate: no tokens")
    return RequestResult(
        token_ids=ids,
        logprobs=[_finite(value) for value in (behaviour if masked else [value for value, _ in entries])],
        finish_reason=_FINISHED[kind],
        spans=_spans(raw_spans, len(ids)),
        computed_tokens=max(computed, 0),
        cached_tokens=cached,
        kept=masks if masked else None,
    )


def _whole_span(count: int, adapter: Adapter) -> list[dict[str, Any]]:
    return [{"start": 0, "end": count, "version": adapter.version}] if count else []


_FINISHED: Mapping[str, FinishReason | None] = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": None,
}


def read_scores(answer: Mapping[str, Any], token_ids: TokenIds, limits: ServerLimits) -> Logprobs:
    """Logprobs, float32 [seq - 1]; NaN where the server returned null. Raises ContractError (`bad_answer`)."""
    try:
        entries = answer["meta_info"]["input_token_logprobs"]
        found = [int(entry[1]) for entry in entries]
        values = [math.nan if entry[0] is None else float(entry[0]) for entry in entries[1:]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ContractError(BAD_ANSWER, f"/generate: {error!r}") from error
    # SGLang reports the last token of the vocabulary as token 0, but with the right logprob.
    sent = [0 if token == limits.vocab - 1 else token for token in token_ids.tolist()]
    if found != sent:
        raise ContractError(BAD_ANSWER, f"/generate: {len(found)} logprobs of other tokens than the {len(sent)} sent")
    return np.array(values, dtype=np.float32)


def join_parts(
    parts: Sequence[RequestResult], digests: Mapping[PolicyVersion, str], *, keeps_ids: bool = False
) -> Completion:
    """Joins the parts of a rollout; raises ContractError (`bad_answer`) for a version that was never installed."""
    spans: list[tuple[int, PolicyVersion]] = []
    base = 0
    for part in parts:
        for end, version in part.spans:
            if spans and spans[-1][1] == version:
                spans.pop()
            spans.append((base + end, version))
        base += len(part.token_ids)
    for _, version in spans:
        if version not in digests:
            raise ContractError(BAD_ANSWER, f"/generate: tokens of version {version}, which was not installed")
    starts = [0, *(end for end, _ in spans)]
    reason = parts[-1].finish_reason
    return Completion(
        token_ids=np.array([token for part in parts for token in part.token_ids], dtype=np.int32),
        logprobs=np.array([value for part in parts for value in part.logprobs], dtype=np.float32),
        finish_reason=reason if reason is not None else FinishReason.LENGTH,
        spans=tuple(
            VersionSpan(start=start, end=end, version=version, weights_digest=digests[version])
            for start, (end, version) in zip(starts, spans, strict=False)
        ),
        cached_tokens=parts[0].cached_tokens,
        kept=IdLists.of([ids for part in parts for ids in part.kept or []]) if keeps_ids else None,
    )


def _finite(value: object) -> float:
    """The value as float; raises GenerationError if it is not finite, which SGLang writes as null."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise GenerationError(f"SGLang sampled a token with the logprob {value}")
    return float(value)


def _spans(raw: Sequence[tuple[int, int, str]], count: int) -> tuple[tuple[int, PolicyVersion], ...]:
    """Parses version spans; raises ContractError unless they cover 0 to `count` without gaps."""
    if not count:
        return ()
    starts, ends = [start for start, _, _ in raw], [end for _, end, _ in raw]
    if [0, *ends] != [*starts, count] or any(end <= start for start, end, _ in raw):
        raise ContractError(BAD_ANSWER, f"/generate: version spans {raw} for {count} tokens")
    try:
        return tuple((end, PolicyVersion.parse(version)) for _, end, version in raw)
    except ContractError as error:
        raise ContractError(BAD_ANSWER, f"/generate: {error.message}") from error
