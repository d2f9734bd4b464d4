"""The tests of a data row, in the forms in which they are around. Pure; what cannot be read raises ValueError.

    {"inputs": [...], "outputs": [...], "fn_name": "f"}   APPS, PRIME, TACO, verl's ground truth; fn_name may be absent
    [{"input": ..., "output": ..., "testtype": ...}]      LiveCodeBench; the function as `func_name` of `metadata`, or
                                                          as `fn_name`, in each test or as a column
    ["assert f(1) == 2", ...]                             MBPP
    "def check(candidate): assert candidate(1) == 2"      HumanEval; `entry_point` beside it

Each may also be the JSON text of it. Only what is asked goes into the sandbox; what is expected never does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.services.reward.sandbox.inside.plain import encode
from headrace.services.reward.scorers.code.asserts import AssertCheck, read_asserts
from headrace.services.reward.scorers.code.expected import Equals, ExpectedOutput, Printed

_NAMES = ("fn_name", "func_name", "entry_point")
_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CodeTest:
    """One test: what the program is given, and what it must answer."""

    given: bytes
    """Standard input, or the encoded arguments."""
    answer: ExpectedOutput


@dataclass(frozen=True, slots=True)
class Suite:
    """All tests of a row; at least one."""

    tests: tuple[CodeTest, ...]
    function: str | None
    """None: each test runs the program as a script, with standard input and output."""


def read_suite(column: object, columns: Mapping[str, object]) -> Suite:
    """The tests in a column; `columns` are the others of the row. Raises ValueError saying what is wrong."""
    found = _parsed(column)
    if isinstance(found, Mapping):
        return _suite(_pairs(found), _named(found) or _named(columns), wrapped=_are_wrapped(found["outputs"]))
    if isinstance(found, str):
        return _of_asserts([found], _column_name(columns))
    if not isinstance(found, Sequence):
        raise ValueError("tests must be a list of tests, or {inputs, outputs}")
    if found and all(isinstance(one, str) for one in found):
        return _of_asserts(found, _column_name(columns))
    return _suite([_pair(one) for one in found], _name_of(found, columns), wrapped=False)


def _suite(pairs: Sequence[tuple[object, object]], name: str | None, *, wrapped: bool) -> Suite:
    if not pairs:
        raise ValueError("there are no tests")
    if name is None:
        return Suite(tuple(_scripted(*pair) for pair in pairs), None)
    return Suite(tuple(_called(*pair, wrapped=wrapped) for pair in pairs), name)


def _are_wrapped(outputs: Sequence[object]) -> bool:
    """APPS has each output of a function in a list, of one value; where one has not, it does not."""
    return all(isinstance(one, list) and len(one) == 1 for one in outputs)


def _name_of(tests: Sequence[Mapping[str, object]], columns: Mapping[str, object]) -> str | None:
    """The function that a list of tests calls; None = they are for scripts. The tests' own words come first."""
    kinds = {one.get("testtype") for one in tests}
    names = {name for one in tests if (name := _named(one))}
    if len(names) > 1:
        raise ValueError(f"the tests call several functions: {', '.join(sorted(names))}")
    if "stdin" in kinds:
        if "functional" in kinds:
            raise ValueError("some tests are `stdin`, others `functional`")
        return None
    name = next(iter(names), None) or _named(columns)
    if "functional" in kinds and name is None:
        raise ValueError("`functional` tests need the function's name: `func_name` in `metadata`, or `fn_name`")
    return name


def _column_name(found: Mapping[str, object]) -> str | None:
    return next((str(found[key]) for key in _NAMES if found.get(key)), None)


def _named(found: Mapping[str, object]) -> str | None:
    """The function's name in a test, or beside it; `metadata` is an object, or the JSON text of one."""
    metadata = found.get("metadata")
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except ValueError:  # A column of that name may be anything.
            metadata = None
    inner = _column_name(metadata) if isinstance(metadata, Mapping) else None
    return _column_name(found) or inner


def _parsed(column: object) -> object:
    if not isinstance(column, str):
        return column
    if len(column) > _LARGEST:
        raise ValueError(f"the tests are larger than {_LARGEST >> 20} MiB")
    try:
        return json.loads(column)
    except ValueError:
        if "assert" in column:
            return column
        raise ValueError("the tests are neither JSON nor asserts") from None


def _pairs(found: Mapping[str, object]) -> list[tuple[object, object]]:
    inputs, outputs = found.get("inputs"), found.get("outputs")
    if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or isinstance(inputs, str):
        raise ValueError("tests must have the lists `inputs` and `outputs`")
    if len(inputs) != len(outputs):
        raise ValueError(f"{len(inputs)} inputs and {len(outputs)} outputs: each input needs its output")
    return list(zip(inputs, outputs, strict=True))


def _pair(one: object) -> tuple[object, object]:
    if not isinstance(one, Mapping) or "input" not in one or "output" not in one:
        raise ValueError("each test must have `input` and `output`")
    return one["input"], one["output"]


def _scripted(given: object, wanted: object) -> CodeTest:
    return CodeTest(_text(given, "input").encode(), Printed(_text(wanted, "output")))


def _text(value: object, what: str) -> str:
    """Lists of lines are around as well."""
    if isinstance(value, Sequence) and all(isinstance(line, str) for line in value):
        return value if isinstance(value, str) else "\n".join(value)
    raise ValueError(f"the {what} of a test without a function name must be text")


def _called(given: object, wanted: object, *, wrapped: bool) -> CodeTest:
    """Arguments are a list, or text with one JSON value a line, as LiveCodeBench has them."""
    if isinstance(given, str):
        given = [_json(line) for line in given.split("\n") if line.strip()]
        wanted = _json(wanted) if isinstance(wanted, str) else wanted
        wrapped = False
    if not isinstance(given, Sequence):
        raise ValueError("the input of a function's test must be the list of its arguments")
    return CodeTest(encode(list(given)).encode(), Equals(wanted, loosely=True, wrapped=wrapped))


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"not a JSON value: {text[:80]!r}") from None


def _of_asserts(texts: Sequence[str], name: str | None) -> Suite:
    checks: list[AssertCheck] = [check for text in texts for check in read_asserts(text, name)]
    if not checks:
        raise ValueError("there are no asserts among the tests")
    functions = {check.function for check in checks}
    if len(functions) > 1:
        raise ValueError(f"the asserts call several functions: {', '.join(sorted(functions))}")
    return Suite(tuple(CodeTest(encode(list(check.arguments)).encode(), check.answer) for check in checks), *functions)
