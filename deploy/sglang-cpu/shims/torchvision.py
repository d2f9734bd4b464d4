"""Stand-in for torchvision, which has no use and no plain CPU package here.

SGLang imports it on the way to its image models; text models never call it. Every name of it, and of any module below
it, is there and does nothing. Put this folder on PYTHONPATH of the SGLang process only.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pageable

pageable.make_pageable()

__version__ = "0"
__path__: list[str] = []


def _lookup(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    # Constants, such as interpolation modes, are hashed and compared.
    return 0 if name.isupper() else Nothing


class _AnyName(type):
    """Metaclass of a class that has every attribute."""

    def __getattr__(cls, name: str) -> Any:
        return _lookup(name)


class Nothing(metaclass=_AnyName):
    """Takes any arguments and any attribute's name."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __getattr__(self, name: str) -> Any:
        return _lookup(name)


class Empty(ModuleType):
    """A module in which every name is there."""

    def __getattr__(self, name: str) -> Any:
        return _lookup(name)


class Modules(MetaPathFinder, Loader):
    """Finds every module below torchvision."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Finds our own modules only."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty one."""
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def __getattr__(name: str) -> Any:
    return _lookup(name)


sys.meta_path.insert(0, Modules())
