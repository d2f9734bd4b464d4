"""Which service can reach which failpoint, derived from the source: a graph of what the definitions refer to.

A node is what a module binds at its top (a function, a class with all its methods, a value) or the rest of its top; an
edge leads from a definition to each that its text names, through imports. It is wider than what a process calls:
methods count with their class, branches with their function. `expected.NEVER` narrows it. What it cannot see, a module
that is imported by a computed name, makes a campaign fail that strikes there (`counting`). Calls over gRPC are those of
the protocol: of the service that serves a method, and of roles that may call it and make its request.
"""

import ast
import functools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.wire.access.roles import Role
from tests.chaos.failpoints.source import ROOT, is_reach, names_of, served

SERVICES = tuple(role.value for role in Role if (ROOT / "services" / role / "__main__.py").exists())
_TOP = "<top>"
"""Statements that bind nothing, which run wherever anything of their module does."""
Node = tuple[str, str]
"""A module, and a name that it binds."""


@dataclass(frozen=True, slots=True)
class _Module:
    bound: Mapping[str, list[ast.stmt]] = field(default_factory=lambda: defaultdict(list))
    """Name -> the statements that bind it."""
    imported: dict[str, str] = field(default_factory=dict)
    """Name, within functions too -> the module, or the module's name, that it stands for."""


@functools.cache
def of_services() -> frozenset[str]:
    """SERVICE.POINT of every point that a process of the service can reach."""
    return frozenset(f"{service}.{point}" for service in SERVICES for point in _points_of(service))


def _points_of(service: str) -> set[str]:
    found: set[str] = set()
    words: set[str] = set()
    for module, name in _reached((f"headrace.services.{service}.__main__", _TOP)):
        for statement in _module(module).bound[name]:
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and is_reach(node.func):
                    found |= names_of(node.args[0])
                # A generated stub names the requests of all methods.
                if isinstance(node, ast.Attribute) and not module.endswith("_pb2_grpc"):
                    words.add(node.attr)
    return {point for point in found if not point.startswith("rpc.") or _calls(service, words, point)}


def _calls(service: str, words: Collection[str], point: str) -> bool:
    """Whether a service, whose code has these words, reaches a point of gRPC."""
    _, kind, name = point.split(".")
    if kind == "served":
        return any(service == owner and name == method.name for owner, method, _ in served())
    return name in words and any(name == method.input_type.name and service in roles for _, method, roles in served())


def _reached(start: Node) -> set[Node]:
    seen: set[Node] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += _referred(node)
    return seen


@functools.cache
def _referred(node: Node) -> frozenset[Node]:
    """What the text of a definition names, and the top of its module."""
    name, own = node[0], _module(node[0])
    found = {(name, _TOP)}
    for statement in own.bound[node[1]]:
        for part in ast.walk(statement):
            if isinstance(part, ast.Name):
                found |= _resolved(name, part.id)
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name | ast.Attribute):
                module = own.imported.get(ast.unparse(part.value), "")
                found |= _resolved(module, part.attr)
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                # A module that is imported by its name.
                found |= _whole(part.value.partition(":")[0])
    return frozenset(found)


def _resolved(module: str, name: str) -> set[Node]:
    """The definition that a name of a module stands for; none for a module, or for what is not of this project."""
    if module not in _paths():
        return set()
    own = _module(module)
    if name in own.bound:
        return {(module, name)}
    target = own.imported.get(name, "")
    if not target or target in _paths():
        return {(target, _TOP)} if target else set()
    outer, _, inner = target.rpartition(".")
    return _resolved(outer, inner)


def _whole(module: str) -> set[Node]:
    return {(module, name) for name in _module(module).bound} if module in _paths() else set()


@functools.cache
def _paths() -> Mapping[str, Path]:
    """Name -> file of each module of this project."""
    return dict(_files())


def _files() -> Iterator[tuple[str, Path]]:
    for room in ("services", "wire", "headrace"):
        for path in sorted((ROOT / room).rglob("*.py")):
            inside = path.relative_to(ROOT)
            if inside.parts[:2] not in (("headrace", "services"), ("headrace", "wire")):
                parts = inside.with_suffix("").parts
                yield ".".join(parts if room == "headrace" else ("headrace", *parts)).removesuffix(".__init__"), path


@functools.cache
def _module(name: str) -> _Module:
    tree, found = ast.parse(_paths()[name].read_text()), _Module()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.imported.update({one.asname or one.name: one.name for one in node.names})
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: a relative import"
            found.imported.update({one.asname or one.name: f"{node.module}.{one.name}" for one in node.names})
    for statement in tree.body:
        for bound in _bound(statement) or [_TOP]:
            found.bound[bound].append(statement)
    return found


def _bound(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign() | ast.AnnAssign():
            return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _stored(node)]
        case _:
            return []


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
