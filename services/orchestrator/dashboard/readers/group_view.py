"""One group with all its rollouts, as the dashboard shows them side by side. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

from headrace.services.orchestrator.dashboard.readers.rollout_index import number_or_none
from headrace.services.orchestrator.http.json_text import read_lenient

COLUMNS = (
    *("group_id", "group_index", "rollout_index", "sample_id", "prompt", "completion", "reward", "components"),
    *("token_score", "reason", "scorers", "advantage", "min_version", "max_version", "finish_reason", "tokens"),
    *("trained_tokens", "replica_id", "spans", "trace_id", "token_ids", "logprobs", "token_advantages"),
)
_SPAN = ("start", "end", "version", "weights_digest")
Decode = Callable[[Sequence[int]], list[str] | None]


def group_view(step: int, rows: Sequence[dict[str, Any]], decode: Decode) -> dict[str, Any]:
    """The group as JSON values, from at least one of the step's `rows`. `decode` returns the tokens' texts, or None."""
    first = rows[0]
    return {
        "step": step,
        "group_index": first.get("group_index"),
        "group_id": first.get("group_id") or "",
        "sample_id": first.get("sample_id") or "",
        "prompt": first.get("prompt") or "",
        "trace_id": first.get("trace_id") or "",
        "rollouts": [_rollout(row, decode) for row in rows],
    }


def _rollout(row: dict[str, Any], decode: Decode) -> dict[str, Any]:
    return {
        "rollout_index": row.get("rollout_index"),
        "completion": row.get("completion") or "",
        "reward": number_or_none(row.get("reward")),
        "advantage": number_or_none(row.get("advantage")),
        "token_score": number_or_none(row.get("token_score")),
        "components": _finite(_json(row.get("components"), {})),
        "reason": row.get("reason") or "",
        "scorers": _json(row.get("scorers"), {}),
        "finish_reason": row.get("finish_reason") or "",
        "num_tokens": row.get("tokens"),
        "trained_tokens": row.get("trained_tokens"),
        "min_version": row.get("min_version"),
        "max_version": row.get("max_version"),
        "replica_id": row.get("replica_id") or "",
        "spans": [dict(zip(_SPAN, span, strict=True)) for span in _json(row.get("spans"), []) if _is_span(span)],
        "tokens": _tokens(row, decode),
    }


def _tokens(row: dict[str, Any], decode: Decode) -> list[dict[str, Any]]:
    """Token entries; empty for files without token ids. A logprob of None means that the token was not sampled."""
    ids = row.get("token_ids") or []
    nothing: list[str | None] = [None] * len(ids)
    texts = decode(ids) or nothing
    logprobs = row.get("logprobs") or [None] * len(ids)
    advantages = row.get("token_advantages") or [row.get("advantage")] * len(ids)
    return [
        {"id": token, "text": text, "logprob": number_or_none(logprob), "advantage": number_or_none(advantage)}
        for token, text, logprob, advantage in zip(ids, texts, logprobs, advantages, strict=False)
    ]


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == len(_SPAN)


def _json(text: str | None, otherwise: Any) -> Any:
    try:
        value = read_lenient(text or "null")
    except ValueError:
        return otherwise
    return value if type(value) is type(otherwise) else otherwise


def _finite(values: dict[str, Any]) -> dict[str, float | None]:
    return {name: number_or_none(value) for name, value in values.items() if value is None or _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
