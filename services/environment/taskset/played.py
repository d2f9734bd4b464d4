"""Inside the sandbox: a trace of `verifiers` as the worker reads it.

Source: verifiers 0.4, v1/trace.py (`Trace.branches`) and v1/graph.py (`MessageNode`).
"""

import contextlib
import json
import re
from collections.abc import Sequence

from verifiers.v1.episode import Episode
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Error
from verifiers.v1.types import Message

from headrace.services.environment.child.errors import ResultError
from headrace.services.environment.child.frames import Json
from headrace.services.environment.taskset.frames import PlayedBranch, PlayedNode, PlayedTrace

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "<frozen")


def played_trace(episode: Episode) -> PlayedTrace:
    """The one agent's run of an episode. Raises ResultError for an episode with another number of them."""
    if len(episode.traces) != 1:
        text = "; ".join(_error_text(one) for one in episode.errors)
        raise ResultError(text or f"the episode has {len(episode.traces)} agents' runs, it must have one")
    (trace,) = episode.traces
    numbers = {id(node): number for number, node in enumerate(trace.nodes)}
    branches: list[PlayedBranch] = [
        {"nodes": [numbers[id(node)] for node in one.nodes], "trainable": one.trainable and trace.agent.trainable}
        for one in trace.branches
    ]
    errors = [*trace.errors, *episode.errors]
    return {
        "nodes": [_node(one) for one in trace.nodes],
        "branches": branches,
        "rewards": {name: float(one.value) for name, one in trace.rewards.items() if one is not None},
        "scored": bool(trace.rewards) and all(one is not None for one in trace.rewards.values()),
        "metrics": {name: float(value) for name, value in trace.metrics.items() if value is not None},
        "stopped": trace.stop_condition or "",
        "truncated": bool(trace.is_truncated),
        "late": bool(trace.is_timeout or episode.is_timeout),
        "error": _error_text(errors[-1]) if errors else "" if trace.ok else "the agent's run did not end well",
        "where": _place(errors[-1].traceback or "") if errors else "",
    }


def _node(node: MessageNode) -> PlayedNode:
    sampled = sum(node.mask)
    if sampled and not all(node.mask[-sampled:]):
        raise ResultError("a message of the policy has tokens behind those that were sampled")
    return {
        "parent": node.parent,
        "ids": list(node.token_ids),
        "sampled": sampled if node.sampled else 0,
        "message": _message(node.message),
    }


def _message(message: Message) -> Json:
    found: Json = {"role": str(message.role), "content": _text(message.content)}
    for key in ("name", "tool_call_id"):
        if getattr(message, key, None):
            found[key] = str(getattr(message, key))
    if calls := getattr(message, "tool_calls", None):
        found["tool_calls"] = [
            {"id": one.id, "name": one.name, "arguments": _arguments(one.arguments)} for one in calls
        ]
    return found


def _text(content: str | Sequence[object] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(getattr(part, "text", None) or f"[{getattr(part, 'type', 'part')}]" for part in content)


def _arguments(text: str) -> object:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def _error_text(error: Error) -> str:
    return f"{error.type}: {error.message}"


def _place(traceback: str) -> str:
    """`file.py:line` of the innermost frame of the user's own files; empty if there is none."""
    own = [found for found in _FRAME.findall(traceback) if not any(one in found[0] for one in _LIBRARIES)]
    return f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]}" if own else ""
