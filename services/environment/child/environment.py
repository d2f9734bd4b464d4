"""The user's environment behind one form: a class with `reset` and `step`, or nothing but tools."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence

from headrace.services.environment.child.errors import ResultError
from headrace.services.environment.child.frames import EnvironmentReset, EnvironmentStep, EpisodeReward, Json
from headrace.services.environment.child.loading import LoadError
from headrace.services.environment.child.tools import OURS, Tool, ToolForm, call_tool


class HostedEnvironment:
    """One instance of the user's class (or none, and tools alone), kept for all episodes of this process."""

    def __init__(
        self,
        instance: object | None,
        functions: Sequence[Callable[..., object]],
        *,
        max_result_chars: int,
        form: ToolForm = OURS,
    ) -> None:
        """Raises LoadError for a class without `reset`, and for a tool that JSON cannot call."""
        if instance is not None and not callable(getattr(instance, "reset", None)):
            raise LoadError(f"{type(instance).__name__} has no method reset(task, rollout_id, attempt)")
        self._instance, self._functions, self._form = instance, tuple(functions), form
        self._max_result_chars = max_result_chars
        self._named: list[object] = []
        self._tools: dict[str, Tool] = {}
        self._offer()

    @property
    def schemas(self) -> list[Json]:
        """What the policy reads of the tools, in the form of OpenAI's `tools`."""
        return [tool.schema for tool in self._tools.values()]

    async def reset(self, task: Json, rollout_id: str, attempt: int) -> EnvironmentReset:
        """Begins an episode: messages and the schemas of tools."""
        if self._instance is None:
            found: object = task.get("messages") or task.get("prompt")
            if found is None:
                raise ResultError('the task has neither "messages" nor a "prompt" to begin with')
        else:
            found = await self._call("reset", task, rollout_id, attempt)
        if isinstance(found, str):
            found = [{"role": "user", "content": found}]
        self._offer()
        messages = _messages(found, "reset")
        if not messages:
            raise ResultError("reset returned no message: there is nothing to answer")
        return {"messages": messages, "tools": self.schemas}

    async def step(self, message: Json) -> EnvironmentStep:
        """Calls the tools that the message calls; a message without calls is the environment's to answer."""
        calls = message["tool_calls"]
        if isinstance(calls, list) and calls and self._tools:
            most = self._max_result_chars
            made = [await call_tool(self._tools, call, max_chars=most, form=self._form) for call in calls]
            answer = _step([one.message for one in made], done=False)
            answer["calls"] = [one.note for one in made]
            return answer
        if not callable(getattr(self._instance, "step", None)):
            return _step([], done=True)
        found = await self._call("step", message)
        if found is None:
            return _step([], done=True)
        if not isinstance(found, Mapping):
            raise ResultError(f"step returned {_short(found)}, it must return a dict or None")
        if unknown := set(found) - {"messages", "done", "reward", "turn_reward", "components", "metrics"}:
            raise ResultError(f"step returned the key {sorted(unknown)[0]!r}, which is none of its keys")
        done = found.get("done", True)
        messages = _messages(found.get("messages", []), "step")
        if not (isinstance(done, bool) and (done or messages)):
            raise ResultError("step returned no messages, and yet it is not done: there is nothing to answer")
        answer = _step(messages, done=done)
        answer["reward"] = _number(found.get("reward"), "step", "reward")
        answer["turn_reward"] = _number(found.get("turn_reward"), "step", "turn_reward")
        answer["components"] = _numbers(found.get("components"), "step", "components")
        answer["metrics"] = _numbers(found.get("metrics"), "step", "metrics")
        return answer

    async def reward(self, messages: list[Json]) -> EpisodeReward:
        """The environment's reward of the whole episode, if it gives one."""
        found: object = None
        if callable(getattr(self._instance, "reward", None)):
            found = await self._call("reward", messages)
        if not isinstance(found, Mapping):
            found = {"value": found}
        if unknown := set(found) - {"value", "components", "metrics"}:
            raise ResultError(f"reward returned the key {sorted(unknown)[0]!r}; give value, components, metrics")
        return {
            "value": _number(found.get("value"), "reward", "value"),
            "components": _numbers(found.get("components"), "reward", "components"),
            "metrics": _numbers(found.get("metrics"), "reward", "metrics"),
        }

    def _offer(self) -> None:
        """Makes the tools that the instance names now: it may choose them in `reset`. Raises LoadError."""
        named = list(getattr(self._instance, "tools", ()))
        if self._tools and named == self._named:
            return
        own = [getattr(self._instance, one) if isinstance(one, str) else one for one in named]
        self._named = named
        self._tools = {tool.name: tool for tool in map(self._form.make, (*own, *self._functions))}

    async def _call(self, method: str, *arguments: object) -> object:
        found = getattr(self._instance, method)(*arguments)
        return await found if inspect.isawaitable(found) else found


def _step(messages: list[Json], *, done: bool) -> EnvironmentStep:
    return EnvironmentStep(
        messages=messages, done=done, reward=None, turn_reward=None, components={}, metrics={}, calls=[]
    )


def _messages(found: object, method: str) -> list[Json]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ResultError(f"{method} returned {_short(found)} as messages, they must be a list of dicts")
    for one in found:
        if not isinstance(one.get("role"), str) or not isinstance(one.get("content"), str):
            raise ResultError(f'{method} returned the message {_short(one)}: "role" and "content" must be texts')
    return found


def _number(value: object, method: str, key: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ResultError(f"{method} returned {key} = {_short(value)}, it must be a finite number")
    return float(value)


def _numbers(found: object, method: str, key: str) -> dict[str, float]:
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ResultError(f"{method} returned {key} = {_short(found)}, it must be a dict of numbers")
    return {str(name): _number(value, method, f"{key}.{name}") or 0.0 for name, value in found.items()}


def _short(value: object) -> str:
    return repr(value)[:120]
