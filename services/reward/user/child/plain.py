"""`module:function` in a worker: one call a sample."""

from collections.abc import Callable
from typing import Any

from headrace.services.reward.user.calls import about, find, plain, settled


def serve(target: str) -> Callable[[dict[str, object]], dict[str, object]]:
    """Finds the function; returns what answers a job of it.

    `{"completion": text, "keywords": {...}}` -> `{"value": ...}`, judged by the rubric; `{"about": True}` -> its
    signature and version. Raises ConfigError if there is no such function, and in a job what the function raises.
    """
    function = find(target)

    def answer(job: dict[str, Any]) -> dict[str, object]:
        if "about" in job:
            return about(function)
        return {"value": plain(settled(function(job["completion"], **job["keywords"])))}

    return answer
