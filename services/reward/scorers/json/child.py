"""What the `json_schema` scorer's workers run: reading JSON and holding it against a schema.

Jobs: `{"text": completion, "schema": text of a schema}` -> `{"parses": bool, "why": text}`, where an empty `why` means
that it validates; `{"schema": ...}` alone asks whether the schema can be followed at all. `{"broken": text}` if it
cannot, for any completion.
"""

import functools
import json
from collections.abc import Callable

from headrace.services.reward.scorers.json.check import Checker
from headrace.services.reward.scorers.json.reading import read_json


def serve() -> Callable[[dict[str, str]], dict[str, object]]:
    """The function of a worker."""
    return _answer


def _answer(job: dict[str, str]) -> dict[str, object]:
    try:
        checker = _checker(job["schema"])
        if "text" not in job:
            return {}
        try:
            value = read_json(job["text"])
        except (ValueError, RecursionError) as error:
            return {"parses": False, "why": f"no JSON: {error}"}
        return {"parses": True, "why": checker.problem(value) or ""}
    except ValueError as error:
        return {"broken": str(error)}


@functools.lru_cache(maxsize=64)
def _checker(schema: str) -> Checker:
    checker = Checker(json.loads(schema))
    checker.probe()
    return checker
