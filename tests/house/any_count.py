"""Counts how often `Any` stands in the tree's syntax: by any name it is imported under, and by aliases made of it."""

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path


def count_any(sources: Iterable[tuple[str, str]]) -> Counter[str]:
    """Module -> uses of `Any`, from (module, source) of all of them.

    A use is each place where `typing.Any` is named, as in an annotation or a `cast`, also in a quoted annotation, and
    each place that names a module-level alias in whose definition `Any` stands. Imports are no uses.
    """
    trees = {module: ast.parse(source) for module, source in sources}
    imports = {module: _imports(tree) for module, tree in trees.items()}
    aliases: set[tuple[str, str]] = set()
    while True:
        found = {
            (module, name)
            for module, tree in trees.items()
            for name, value in _definitions(tree)
            if _uses(value, _names(imports[module], module, aliases))
        }
        if found <= aliases:
            break
        aliases |= found
    return Counter({module: _uses(tree, _names(imports[module], module, aliases)) for module, tree in trees.items()})


def module_of(path: Path, root: Path) -> str:
    """The name under which a source is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts if parts[0] == "headrace" else ("headrace", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def _names(imports: list[ast.Import | ast.ImportFrom], module: str, aliases: set[tuple[str, str]]) -> set[str]:
    """What `Any`, the module `typing`'s attribute, and aliases are called in a module."""
    names = {name for owner, name in aliases if owner == module}
    for node in imports:
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                is_any = node.module in ("typing", "typing_extensions") and one.name == "Any"
                if is_any or (node.module, one.name) in aliases:
                    names.add(one.asname or one.name)
        else:
            names |= {f"{one.asname or one.name}.Any" for one in node.names if one.name == "typing"}
    return names


def _definitions(tree: ast.Module) -> Iterable[tuple[str, ast.expr]]:
    """Module-level aliases of types: an assignment to one name of a type expression."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            is_type = isinstance(node.value, ast.Name | ast.Subscript | ast.BinOp | ast.Attribute)
            yield from [(node.targets[0].id, node.value)] if is_type else []
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            is_alias = ast.unparse(node.annotation).endswith("TypeAlias")
            yield from [(node.target.id, node.value)] if is_alias else []


def _uses(tree: ast.AST, names: set[str]) -> int:
    if not names:
        return 0
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            count += node.id in names
        elif isinstance(node, ast.Attribute) and node.attr == "Any":
            count += ast.unparse(node) in names
        for quoted in _quoted(node):
            count += _uses(quoted, names)
    return count


def _quoted(node: ast.AST) -> Iterable[ast.expr]:
    """Annotations, or parts of them, that are written as strings."""
    kinds = []
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        kinds.append(node.annotation)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        kinds.append(node.returns)
    if isinstance(node, ast.Call) and _last_name(node.func).endswith("cast") and node.args:
        kinds.append(node.args[0])
    for kind in kinds:
        for part in ast.walk(kind):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                try:
                    yield ast.parse(part.value, mode="eval").body
                except SyntaxError:
                    continue


def _last_name(called: ast.expr) -> str:
    """`f` of `f`, `a.f` and `a[0].f`; nothing of a call of what a call returned."""
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
