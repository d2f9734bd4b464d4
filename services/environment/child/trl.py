"""`trl:module:factory`: an `environment_factory` as TRL's GRPOTrainer takes it, unchanged.

A factory (a class) of instances, or a dict of them from which the row's `environment` chooses. `reset(**row)` returns
None or text that is appended to the last message of the prompt; public methods are tools; `get_reward()` gives a reward
of weight 1, and reward functions may look into the instance by their argument `environments`.
Source: TRL 1.16, `trl/trainer/grpo_trainer.py` (`GRPOTrainer.__init__`, `_tool_call_loop`, `_calculate_rewards`).
"""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from numbers import Real

from pydantic import JsonValue, TypeAdapter

from headrace.services.environment.child.errors import ResultError
from headrace.services.environment.child.frames import Json
from headrace.services.environment.child.loading import LoadError
from headrace.services.environment.child.tools import Tool, ToolForm
from headrace.wire.contracts.transcript import openai_message

_NO_TOOLS = frozenset({"reset", "get_reward"})
_NOT_A_COLUMN = frozenset({"prompt", "completion", "completion_ids"})
_ABSENT = ("completion_ids", "trainer_state")
"""What TRL gives reward functions, and a process that knows neither tokens nor trainer cannot."""
_MESSAGE = TypeAdapter(dict[str, JsonValue])
Rewarding = Callable[..., object]


class TrlEnvironment:
    """Plays one of the factories' instances, each of which is made once and reset for every episode."""

    def __init__(
        self, factory: object, functions: Sequence[Callable[..., object]], rewards: Sequence[Rewarding]
    ) -> None:
        """`functions`: tools beside the instances' own. Raises LoadError for classes that TRL would refuse."""
        self._by_row = isinstance(factory, Mapping)
        factories: Mapping[object, object] = factory if isinstance(factory, Mapping) else {None: factory}
        if not factories or not all(callable(one) for one in factories.values()):
            raise LoadError(
                "it is no environment_factory: give a class or function without arguments, or a dict of them"
            )
        self._instances = {name: make() for name, make in factories.items() if callable(make)}
        self._functions, self._rewards = tuple(functions), tuple(rewards)
        for instance in self._instances.values():
            if "reset" not in _methods(instance):
                raise LoadError(f"{type(instance).__name__} has no method reset(**row)")
        for one in self._rewards:
            _check_reward(one)
        names = [*map(_name, self._rewards), *{type(one).__name__ for one in self._instances.values()}]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise LoadError(f"two rewards have the name {twice[0]}, and each is shown by its name: rename one")
        self._now = next(iter(self._instances.values()))
        self._task: Json = {}
        self._asked = 0
        """Messages before the policy's first."""

    @property
    def every_tool(self) -> list[Callable[..., object]]:
        """The tools of all instances, to be checked at the start."""
        return [*self._functions, *(tool for one in self._instances.values() for tool in _tools(one))]

    @property
    def tools(self) -> list[Callable[..., object]]:
        """The tools of this episode, in TRL's order: functions, then methods by name."""
        return [*self._functions, *_tools(self._now)]

    async def reset(self, task: Json, rollout_id: str, attempt: int) -> list[Json]:
        """Chooses and resets the instance; returns the prompt with what it said. Raises LookupError, TypeError."""
        name = task.get("environment") if self._by_row else None
        if name not in self._instances:
            raise LookupError(f"the row's environment is {name!r}; there are {', '.join(map(str, self._instances))}")
        self._now = self._instances[name]
        self._task = {key: value for key, value in task.items() if not (self._by_row and key == "environment")}
        said = await _settled(self._now.reset(**self._task))
        if not (said is None or isinstance(said, str)):
            raise TypeError(f"reset returned {type(said).__name__}; None or text can be played, images cannot")
        messages = _prompt(task)
        if said is not None:
            messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']}{said}"}
        self._asked = len(messages)
        return messages

    async def reward(self, messages: list[Json]) -> dict[str, object]:
        """The sum of all rewards that apply, and each by its name; no value where none applies."""
        metrics: dict[str, float] = {}
        found: dict[str, object] = {}
        if "get_reward" in _methods(self._now):
            found[type(self._now).__name__] = await _settled(self._now.get_reward())
        for one in self._rewards:
            found[_name(one)] = _of_one(_name(one), await _settled(one(**self._keywords(messages, metrics))))
        applying = {name: value for name, value in found.items() if value is not None}
        if wrong := [name for name, value in applying.items() if not isinstance(value, Real)]:
            raise TypeError(f"{wrong[0]} returned {str(applying[wrong[0]])[:80]}, it must be a number or None")
        numbers = {name: float(value) for name, value in applying.items() if isinstance(value, Real)}
        return {"value": sum(numbers.values()) if numbers else None, "components": numbers, "metrics": metrics}

    def _keywords(self, messages: Sequence[Json], metrics: dict[str, float]) -> dict[str, object]:
        """What TRL calls a reward function with, for a batch of one."""
        columns = {key: [value] for key, value in self._task.items() if key not in _NOT_A_COLUMN}
        return {
            "prompts": [list(messages[: self._asked])],
            "completions": [[openai_message(_MESSAGE.validate_python(one)) for one in messages[self._asked :]]],
            **columns,
            "environments": [self._now],
            "log_extra": lambda *_: None,
            "log_metric": lambda name, value: metrics.update({str(name): float(value)}),
        }


def _tool(function: Callable[..., object]) -> Tool:
    """A tool with the schema that TRL gives to the chat template. Raises LoadError for a docstring without it."""
    from transformers.utils.chat_template_utils import (
        DocstringParsingException,
        TypeHintParsingException,
        get_json_schema,
    )

    name = str(getattr(function, "__name__", function))
    try:
        return Tool(name, function, get_json_schema(function))
    except (DocstringParsingException, TypeHintParsingException) as error:
        raise LoadError(f"the tool {name}: {error}") from error


def _returned(found: object) -> str:
    """What a tool returned, as the policy reads it. Raises ResultError for images."""
    if isinstance(found, list) and any(isinstance(one, dict) and "type" in one for one in found):
        if not all(isinstance(one, dict) and one.get("type") == "text" for one in found):
            raise ResultError("a tool returned parts of a message that are no text: only text can be played")
        return "".join(str(one.get("text", "")) for one in found)
    return str(found)


FORM = ToolForm(
    make=_tool,
    unknown=lambda name, _: str({"error": f"Tool {name} not found."}),
    raised=lambda error: str({"error": str(error)}),
    returned=_returned,
)


def _methods(instance: object) -> list[str]:
    # Of the class: on the instance `getmembers` would evaluate properties.
    return [name for name, _ in inspect.getmembers(type(instance), predicate=inspect.isfunction)]


def _tools(instance: object) -> list[Callable[..., object]]:
    names = [name for name in _methods(instance) if name not in _NO_TOOLS and not name.startswith("_")]
    return [getattr(instance, name) for name in names]


def _prompt(task: Json) -> list[Json]:
    given = task.get("prompt", "")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not (isinstance(given, list) and given and all(isinstance(one, dict) for one in given)):
        raise TypeError("the row's prompt must be text, or a list of messages")
    return [dict(one) for one in given]


def _check_reward(function: Rewarding) -> None:
    """Raises LoadError for a function that needs what is not there."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in _ABSENT and parameter.default is parameter.empty:
            raise LoadError(
                f"{_name(function)} needs {parameter.name}, which a process of an environment does not have: give it a "
                'default, or name the function as a scorer, "trl:module:function"'
            )


async def _settled(found: object) -> object:
    return await found if inspect.isawaitable(found) else found


def _name(function: Rewarding) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _of_one(name: str, found: object) -> object:
    if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != 1:
        raise TypeError(f"{name} returned {str(found)[:80]}, it must return a list of one number or None")
    return found[0]
