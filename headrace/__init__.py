"""Headrace, the one installed package: the command line, with the services and contracts linked here.

From Python `headrace.train` starts a run and `headrace.load_run` opens one; `__init__.pyi` has their types.
"""

from importlib import import_module

_PLACES = {"HeadraceError": "wire.errors", "Run": "api.run", "load_run": "api.run", "train": "api.train"}
"""Public name -> its module, which is imported when the name is first used: every command imports this package."""


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"headrace.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
