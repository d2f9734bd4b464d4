"""Names that programs of LeetCode's kind use without importing them. Only the standard library."""

import builtins
import importlib

_WHOLE = "string re collections heapq bisect copy math random itertools functools operator typing"
"""Modules whose public names are all there; the later ones win."""
_AS_MODULES = "sys time io " + _WHOLE


def names() -> dict[str, object]:
    """Name -> object. What is a builtin already is not among them: `pow` is not `math.pow`."""
    found: dict[str, object] = {}
    for name in _WHOLE.split():
        module = vars(importlib.import_module(name))
        public = module.get("__all__") or [key for key in module if not key.startswith("_")]
        found |= {key: module[key] for key in public if key in module}
    found |= {name: importlib.import_module(name) for name in _AS_MODULES.split()}
    return {name: value for name, value in found.items() if name not in vars(builtins)}
