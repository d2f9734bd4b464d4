"""Tools: functions of the user's, their JSON schemas, and their calls by a policy that may say anything."""

import inspect
import json
import re
import time
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.services.environment.child.errors import ResultError, ToolLostError
from headrace.services.environment.child.frames import Json, ToolNote
from headrace.services.environment.child.loading import LoadError, describe_error

_PLAIN: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """One function and what the policy reads of it."""

    name: str
    function: Callable[..., object]
    schema: Json
    """The form of OpenAI's `tools`."""
    parameters: dict[str, Json] | None = None
    """Name -> JSON schema that an argument must fit; None: the function checks what it is called with."""
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """One call's answer, for the policy, and what is known of the call."""

    message: Json
    note: ToolNote


@dataclass(frozen=True, slots=True)
class ToolForm:
    """How functions become tools, and what the policy reads of their calls."""

    make: Callable[[Callable[..., object]], Tool]
    unknown: Callable[[str, Mapping[str, Tool]], str]
    """What the policy reads where no tool has the name; given are the name and the tools that there are."""
    raised: Callable[[Exception], str]
    returned: Callable[[object], str]


def make_tool(function: Callable[..., object]) -> Tool:
    """A tool of a function with type hints. Raises LoadError naming the parameter without a hint that JSON can hold."""
    name = getattr(function, "__name__", str(function))
    hints = typing.get_type_hints(function)
    described, about = _docstring(function)
    found: dict[str, Json] = {}
    required = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise LoadError(f"the tool {name} has a parameter {parameter}, which cannot be given by name")
        if parameter.name not in hints:
            raise LoadError(f"the tool {name}: its parameter {parameter.name} has no type hint")
        found[parameter.name] = _schema(hints[parameter.name], f"the tool {name}: its parameter {parameter.name}")
        if parameter.name in about:
            found[parameter.name]["description"] = about[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters = {"type": "object", "properties": found, "required": required}
    schema: Json = {"name": name, "description": described, "parameters": parameters}
    return Tool(name, function, {"type": "function", "function": schema}, found, tuple(required))


def _schema(hint: object, where: str) -> Json:
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is list:
        return {"type": "array", "items": _schema(of[0], where)}
    if origin is dict:
        return {"type": "object"}
    if origin is Literal:
        return {"enum": list(of)}
    if origin in (typing.Union, types.UnionType) and type(None) in of and len(of) == 2:
        return _schema(next(one for one in of if one is not type(None)), where) | {"nullable": True}
    raise LoadError(
        f"{where} has the type {hint}; give str, int, float, bool, list, dict, Literal, or one of them or None"
    )


def _docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """The description, and those of the arguments, of a docstring in Google's style."""
    text = inspect.getdoc(function) or ""
    described, _, rest = text.partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", rest, maxsplit=1)[0]
    about = re.findall(r"^\s+(\w+)(?: \([^)]*\))?:\s*(.+)$", section, re.MULTILINE)
    return re.split(r"\n(?=(?:Returns|Raises):)", described)[0].strip(), {name: said.strip() for name, said in about}


OURS = ToolForm(
    make=make_tool,
    unknown=lambda name, tools: f"Error: there is no tool {name!r}; there are {', '.join(tools) or 'none'}",
    raised=lambda error: f"Error: {describe_error(error)}",
    returned=lambda found: found if isinstance(found, str) else json.dumps(found),
)


async def call_tool(tools: Mapping[str, Tool], call: object, *, max_chars: int, form: ToolForm = OURS) -> ToolResult:
    """Calls a tool; errors become text for the policy, except the tool's ToolLostError and MemoryError."""
    begin = time.monotonic()
    given = call if isinstance(call, dict) else {}
    name, arguments = str(given.get("name")), given.get("arguments")
    tool = tools.get(name)
    outcome, text = "refused", form.unknown(name, tools)
    if tool is not None and isinstance(arguments, dict):
        problem = _arguments_problem(tool, arguments)
        outcome, text = ("refused", f"Error: {problem}") if problem else await _called(tool, arguments, form)
    cut = max(len(text) - max_chars, 0)
    if cut:
        text = text[:max_chars] + f"\n[{cut} more characters were cut]"
    seconds = time.monotonic() - begin
    note = ToolNote(name=name if tool is not None else "unknown", seconds=seconds, outcome=outcome, cut=cut)
    return ToolResult({"role": "tool", "name": name, "content": text}, note)


async def _called(tool: Tool, arguments: Mapping[str, object], form: ToolForm) -> tuple[str, str]:
    try:
        found = tool.function(**arguments)
        if inspect.isawaitable(found):
            found = await found
        return "returned", form.returned(found)
    except (MemoryError, ResultError, ToolLostError):
        raise
    except Exception as error:
        return "raised", form.raised(error)


def _arguments_problem(tool: Tool, arguments: Mapping[str, object]) -> str | None:
    if tool.parameters is None:
        return None
    known = ", ".join(tool.parameters) or "none"
    missing = [name for name in tool.required if name not in arguments]
    if missing:
        return f"the argument {missing[0]!r} is missing; the arguments are {known}"
    for name, value in arguments.items():
        if name not in tool.parameters:
            return f"there is no argument {name!r}; the arguments are {known}"
        if not _fits(tool.parameters[name], value):
            shape = {key: one for key, one in tool.parameters[name].items() if key != "description"}
            return f"the argument {name!r} is {json.dumps(value)[:80]}, it must be of {json.dumps(shape)}"
    return None


def _fits(schema: object, value: object) -> bool:
    """Whether a value is of a schema that `_schema` makes."""
    match schema:
        case {"nullable": True, **rest}:
            return value is None or _fits(rest, value)
        case {"enum": list(values)}:
            return value in values
        case {"type": "integer"}:
            return isinstance(value, int) and not isinstance(value, bool)
        case {"type": "number"}:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case {"type": "array", "items": items}:
            return isinstance(value, list) and all(_fits(items, one) for one in value)
        case {"type": "string" | "boolean" | "object" | "array" as kind}:
            return isinstance(value, {"string": str, "boolean": bool, "object": dict, "array": list}[kind])
    return True
