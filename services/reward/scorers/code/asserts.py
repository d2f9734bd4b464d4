"""Asserts of a data row, taken apart into the call, which goes into the sandbox, and what is expected, which does not.

    assert f(1, [2]) == 3            assert f(1) is None        assert f(1)        assert not f(1)
    assert sorted(f([2, 1])) == [1, 2]                           assert set(f("ab")) == set(("a", "b"))
    assert f(1) != 2                 assert abs(f(1) - 0.5) < 1e-6
    assert math.isclose(f(1), 0.5, rel_tol=1e-3)

with literals in all places. Nothing of them is run as code outside. Any other assert is an error of the row.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.services.reward.scorers.code.expected import Differs, Equals, ExpectedOutput, Holds, Is, Near
from headrace.services.reward.scorers.code.values import SHAPES

_LARGEST = 1 << 20
_KINDS: Mapping[str, Callable[..., object]] = {
    "set": set,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "frozenset": frozenset,
    "sorted": sorted,
}


@dataclass(frozen=True, slots=True)
class AssertCheck:
    """One assert, taken apart."""

    function: str
    arguments: tuple[object, ...]
    answer: ExpectedOutput


def read_asserts(text: str, entry_point: str | None) -> Iterator[AssertCheck]:
    """The asserts of a text: its own lines, or those in `def check(candidate)`. Raises ValueError for any other."""
    if len(text) > _LARGEST:
        raise ValueError("the asserts are longer than 1 MiB")
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the asserts are not Python: {error}") from None
    for statement in statements:
        yield from _read(statement, entry_point)


def _read(statement: ast.stmt, entry_point: str | None) -> Iterator[AssertCheck]:
    if isinstance(statement, ast.Assert):
        yield _check(statement.test, {})
    elif isinstance(statement, ast.FunctionDef) and statement.name == "check" and len(statement.args.args) == 1:
        if not entry_point:
            raise ValueError("def check(candidate) needs the column `entry_point`")
        names = {statement.args.args[0].arg: entry_point}
        for inner in statement.body:
            if isinstance(inner, ast.Assert):
                yield _check(inner.test, names)
            elif not _is_idle(inner):
                raise ValueError(f"line {inner.lineno}: only asserts can be tests, not {_shown(inner)}")
    elif not _is_idle(statement):
        raise ValueError(f"line {statement.lineno}: only asserts can be tests, not {_shown(statement)}")


def _is_idle(statement: ast.stmt) -> bool:
    """Imports, METADATA = {...}, docstrings, and the call of check itself."""
    if isinstance(statement, ast.Expr):
        value = statement.value
        is_check = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "check"
        return isinstance(value, ast.Constant) or is_check
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id.isupper() for target in statement.targets)
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call, and what is made of what it returns."""

    function: str
    arguments: tuple[object, ...]
    shape: Callable[[object], object] | None = None


def _check(test: ast.expr, names: dict[str, str]) -> AssertCheck:
    try:
        asked, answer = _taken_apart(test, names)
    except _OtherForm:
        raise ValueError(
            f"line {test.lineno}: an assert must be of the form f(arguments) == value, with literals; this is not: "
            f"{_shown(test)}"
        ) from None
    return AssertCheck(asked.function, asked.arguments, answer)


class _OtherForm(Exception):
    """Not an assert that can be taken apart."""


def _taken_apart(test: ast.expr, names: dict[str, str]) -> tuple[_Asked, ExpectedOutput]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _plain_call(test.operand, names), Holds(False)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(test.left, test.ops[0], test.comparators[0], names)
    if isinstance(test, ast.Call) and _name(test.func) in ("math.isclose", "isclose"):
        return _close(test, names)
    return _plain_call(test, names), Holds(True)


def _compared(
    left: ast.expr, operator: ast.cmpop, right: ast.expr, names: dict[str, str]
) -> tuple[_Asked, ExpectedOutput]:
    if isinstance(operator, ast.Lt | ast.LtE):
        return _within(left, right, names)
    if not isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        raise _OtherForm
    try:
        asked, value = _shaped_call(left, names), _literal(right)
    except _OtherForm:
        asked, value = _shaped_call(right, names), _literal(left)
    answer = Equals(value, shape=asked.shape) if isinstance(operator, ast.Eq | ast.NotEq) else _identical(asked, value)
    return asked, answer if isinstance(operator, ast.Eq | ast.Is) else Differs(answer)


def _identical(asked: _Asked, value: object) -> Is:
    """Only of what there is once: no other object is a list in an assert."""
    if asked.shape is not None or not (value is None or isinstance(value, bool | int | float | str)):
        raise _OtherForm
    return Is(value)


def _within(left: ast.expr, right: ast.expr, names: dict[str, str]) -> tuple[_Asked, ExpectedOutput]:
    """abs(f(x) - value) < limit"""
    if not (isinstance(left, ast.Call) and _name(left.func) == "abs" and len(left.args) == 1):
        raise _OtherForm
    difference = left.args[0]
    if not (isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub)):
        raise _OtherForm
    try:
        asked, value = _plain_call(difference.left, names), _literal(difference.right)
    except _OtherForm:
        asked, value = _plain_call(difference.right, names), _literal(difference.left)
    return asked, Near(_real(value), absolute=_real(_literal(right)), relative=0.0)


def _close(test: ast.Call, names: dict[str, str]) -> tuple[_Asked, ExpectedOutput]:
    """math.isclose(f(x), value, rel_tol=..., abs_tol=...)"""
    if len(test.args) != 2:
        raise _OtherForm
    given = {word.arg: _real(_literal(word.value)) for word in test.keywords}
    if not set(given) <= {"rel_tol", "abs_tol"}:
        raise _OtherForm
    value = _real(_literal(test.args[1]))
    near = Near(value, absolute=given.get("abs_tol", 0.0), relative=given.get("rel_tol", 1e-9))
    return _plain_call(test.args[0], names), near


def _shaped_call(node: ast.expr, names: dict[str, str]) -> _Asked:
    """f(x), or a shape of it: sorted(f(x))."""
    name = _name(node.func) if isinstance(node, ast.Call) else ""
    if isinstance(node, ast.Call) and name in SHAPES and len(node.args) == 1 and not node.keywords:
        inner = _plain_call(node.args[0], names)
        return _Asked(inner.function, inner.arguments, SHAPES[name])
    return _plain_call(node, names)


def _plain_call(node: ast.expr, names: dict[str, str]) -> _Asked:
    if not isinstance(node, ast.Call) or node.keywords:
        raise _OtherForm
    name = _name(node.func).removeprefix("Solution().")
    if not name.isidentifier() or name in SHAPES or name == "abs":
        raise _OtherForm
    return _Asked(names.get(name, name), tuple(_literal(argument) for argument in node.args))


def _literal(node: ast.expr) -> object:
    """A literal, or a shape of one: set((1, 2)), float("inf")."""
    if isinstance(node, ast.Call) and not node.keywords and len(node.args) < 2:
        name = _name(node.func)
        if name == "float":
            return _real(_literal(node.args[0]) if node.args else 0.0)
        if name in _KINDS:
            try:
                return _KINDS[name](*(_literal(argument) for argument in node.args))
            except TypeError:
                raise _OtherForm from None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise _OtherForm from None


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _OtherForm from None


def _name(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) < 100 else text[:100] + "..."
