"""The failpoints that the source has, and the effects beside which one must stand. Pure, but for reading the files."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import MethodDescriptor

from headrace.wire.access.roles import ALLOWED, Role
from headrace.wire.v1 import orchestrator_pb2, reward_pb2, rollout_pb2, trainer_pb2

ROOT = Path(__file__).parents[3]
EFFECTS = frozenset({"fsync", "rename", "replace", "xadd", "xack", "xclaim", "hincrby", "write_whole"})
"""Calls whose effect outlives the process."""


@functools.cache
def files() -> tuple[tuple[str, ast.Module], ...]:
    """Path and syntax tree of each module of services and wire."""
    found = [path for room in ("services", "wire") for path in sorted((ROOT / room).rglob("*.py"))]
    written = [path for path in found if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))]
    return tuple((str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in written)


def points() -> set[str]:
    """All points, those with a variable part expanded from what it can be."""
    found = set()
    for _, tree in files():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and is_reach(node.func):
                found |= names_of(node.args[0])
    return found


def effects_without_a_point() -> list[str]:
    """`path:function: call` of each effect in a function that has no failpoint."""
    found = []
    for path, tree in files():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            if not any(map(is_reach, calls)):
                found += [f"{path}:{function.name}: {name}" for call in calls if (name := _effect(call))]
    return sorted(set(found))


def is_reach(call: ast.expr) -> bool:
    """Whether `call` is what a failpoint calls."""
    return isinstance(call, ast.Attribute) and call.attr == "reach" and _text(call.value) == "failpoints"


def _effect(call: ast.expr) -> str:
    """The name of an effect; empty for any other call, such as `str.replace`."""
    if not isinstance(call, ast.Attribute) or call.attr not in EFFECTS:
        return ""
    owner = _text(call.value)
    if call.attr in ("rename", "replace") and not _is_path(owner):
        return ""
    return call.attr


def _is_path(owner: str) -> bool:
    return owner in ("os", "shutil") or any(word in owner for word in ("path", "folder", "aside", "source", "file"))


def _text(node: ast.expr) -> str:
    return ast.unparse(node)


def names_of(node: ast.expr) -> set[str]:
    """The points that the argument of a failpoint can name."""
    if isinstance(node, ast.Constant):
        return {str(node.value)}
    assert isinstance(node, ast.JoinedStr)
    first = node.values[0]
    assert isinstance(first, ast.Constant)
    return {f"{first.value}{rest}" for rest in _VARIABLE[str(first.value)]()}


def _methods() -> set[str]:
    """Names of the unary methods of all services."""
    return {method.name for _, method, _ in served() if not method.server_streaming}


def _requests() -> set[str]:
    """Names of the messages with which unary methods are called."""
    return {method.input_type.name for _, method, _ in served() if not method.server_streaming}


def served() -> Iterator[tuple[str, MethodDescriptor, frozenset[str]]]:
    """Each method of all services: the service that serves it, and the roles that may call it."""
    for file in (orchestrator_pb2, reward_pb2, rollout_pb2, trainer_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            owner = Role(service.name.removesuffix("Service").lower())
            for method in service.methods:
                yield owner, method, frozenset(ALLOWED[f"/{service.full_name}/{method.name}"])


_VARIABLE = {
    "rpc.served.": _methods,
    "rpc.before_call.": _requests,
    "rpc.answered.": _requests,
}
