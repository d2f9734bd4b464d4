"""`trl:module:function` in a worker: one call a group."""

from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from headrace.services.reward.user.calls import about, find, numbers, plain, settled


def serve(target: str, options: dict[str, object]) -> Callable[[dict[str, object]], dict[str, object]]:
    """Finds the function; returns what answers a job of it.

    `{"prompts", "completions", "completion_ids", "columns"}`, a group's -> `{"values": [...], "metrics": {...}}`;
    `{"about": True}` -> its signature and version. `options` are further keywords. Raises ConfigError if there is no
    such function; in a job TypeError if it returns no list, and what it raises.
    """
    function = find(target)
    described = about(function)
    taken = described["parameters"] or []
    takes_all = any(kind == Parameter.VAR_KEYWORD for _, kind, _ in taken)
    names = {name for name, _, _ in taken}

    def answer(job: dict[str, Any]) -> dict[str, object]:
        if "about" in job:
            return described
        metrics: dict[str, float] = {}

        def log_metric(name: str, value: object) -> None:
            metrics.update(numbers({name: value}))

        offered = job.pop("columns") | options | job | {"log_extra": _forget, "log_metric": log_metric}
        if offered["completion_ids"] is None:
            del offered["completion_ids"]
        given = offered if takes_all else {key: value for key, value in offered.items() if key in names}
        values = settled(function(**given))
        if isinstance(values, str | bytes | Mapping):
            raise TypeError(f"it returned {type(values).__name__}, not a list of numbers")
        return {"values": [plain(value) for value in values], "metrics": metrics}

    return answer


def _forget(*_: object) -> None:
    """TRL's table of completions has further columns; here there is none."""
