"""Imports what the config names: `module:Class`, or functions `module:function`."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from headrace.wire.process import users_code


class LoadError(Exception):
    """What was named cannot be loaded; the text names it, and file and line of what failed."""


def import_named(target: str, path: Path | None) -> Callable[..., object]:
    """The attribute `module:attribute`; `path` comes last on the import path. Raises LoadError."""
    module_name, colon, attribute = target.partition(":")
    if not (colon and all(part.isidentifier() for part in (*module_name.split("."), attribute))):
        raise LoadError(f"{target!r} is not of the form module:attribute, such as game:Calculator")
    if path is not None and str(path) not in sys.path:
        sys.path.append(str(path))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0]:
            raise LoadError(f"{target}: {describe_error(error)}") from error
        where = f"environment.path {path}" if path is not None else "the import path (environment.path is not set)"
        raise LoadError(f"{target}: there is no module {module_name!r} in {where}") from error
    except Exception as error:
        raise LoadError(f"{target}: {describe_error(error)}") from error
    if not hasattr(module, attribute):
        raise LoadError(f"{target}: {module.__file__} has no {attribute!r}")
    found: Callable[..., object] = getattr(module, attribute)
    return found


def describe_error(error: BaseException) -> str:
    """Class and message of an exception, with the place of its innermost frame outside of this package."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    where = place_of(error)
    return f"{text} ({where})" if where else text


def place_of(error: BaseException) -> str:
    """`file.py:line` of the innermost frame of the user's own files; empty if there is none."""
    return Path(users_code.place_of(error, Path(__file__).parent)).name
