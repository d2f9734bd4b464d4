"""`verl:module:function` in a worker: one call a sample, or one a group."""

from collections.abc import Callable, Mapping
from typing import Any

from headrace.services.reward.user.calls import about, find, numbers, plain, settled


def serve(target: str) -> Callable[[dict[str, object]], dict[str, object]]:
    """Finds the function; returns what answers a job of it.

    `{"keywords": {...}}` -> `{"scores": [{"score", "parts"}]}`, one a sample where the keywords have `solution_strs`;
    `{"about": True}` -> its signature and version. Raises ConfigError if there is no such function; in a job TypeError
    or KeyError if it returns no score, and what it raises.
    """
    function = find(target)

    def answer(job: dict[str, Any]) -> dict[str, object]:
        if "about" in job:
            return about(function)
        keywords = job["keywords"]
        found = settled(function(**keywords))
        if "solution_strs" not in keywords:
            return {"scores": [_one(found)]}
        if isinstance(found, str | bytes | Mapping):
            raise TypeError(f"it returned {type(found).__name__}, not a list of scores")
        return {"scores": [_one(one) for one in found]}

    return answer


def _one(found: object) -> dict[str, object]:
    if not isinstance(found, Mapping):
        return {"score": plain(found), "parts": {}}
    if "score" not in found:
        raise KeyError(f"its dict has no 'score', only {', '.join(map(str, found))}")
    rest = {key: value for key, value in found.items() if key != "score"}
    return {"score": plain(found["score"]), "parts": numbers(rest)}
