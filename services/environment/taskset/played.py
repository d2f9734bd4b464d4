"""Inside the sandbox: the end of a run of `verifiers` as the worker reads it. Source: verifiers 0.4, v1/trace.py."""

import re

from verifiers.v1.episode import Episode
from verifiers.v1.trace import Error

from headrace.services.environment.child.errors import ResultError
from headrace.services.environment.taskset.frames import PlayedTrace

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "<frozen")


def played_trace(episode: Episode) -> PlayedTrace:
    """The one agent's run of an episode. Raises ResultError for an episode with another number of them."""
    if len(episode.traces) != 1:
        text = "; ".join(_error_text(one) for one in episode.errors)
        raise ResultError(text or f"the episode has {len(episode.traces)} agents' runs, it must have one")
    (trace,) = episode.traces
    errors = [*trace.errors, *episode.errors]
    return {
        "rewards": {name: float(one.value) for name, one in trace.rewards.items() if one is not None},
        "scored": bool(trace.rewards) and all(one is not None for one in trace.rewards.values()),
        "metrics": {name: float(value) for name, value in trace.metrics.items() if value is not None},
        "stopped": trace.stop_condition or "",
        "truncated": bool(trace.is_truncated),
        "late": bool(trace.is_timeout or episode.is_timeout),
        "error": _error_text(errors[-1]) if errors else "" if trace.ok else "the agent's run did not end well",
        "where": _place(errors[-1].traceback or "") if errors else "",
    }


def _error_text(error: Error) -> str:
    return f"{error.type}: {error.message}"


def _place(traceback: str) -> str:
    """`file.py:line` of the innermost frame of the user's own files; empty if there is none."""
    own = [found for found in _FRAME.findall(traceback) if not any(one in found[0] for one in _LIBRARIES)]
    return f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]}" if own else ""
