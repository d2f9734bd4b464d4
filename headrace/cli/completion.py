"""Completion in bash, zsh and fish: verbs, options and files by Typer, dotted settings by the schema."""

import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from typer.completion import get_completion_script as _script  # type: ignore[attr-defined]
from typer.completion import install as _install  # type: ignore[attr-defined]
from typer.core import TyperCommand

from headrace.config.schema import RunFile

_PROGRAM, _VARIABLE = "headrace", "_HEADRACE_COMPLETE"
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


@dataclass(frozen=True, slots=True)
class _Item:
    """One proposal, as Typer's shells want it."""

    value: str
    help: str = ""
    type: str = "plain"


class DottedCommand(TyperCommand):
    """A verb that takes settings as options: `--trainer.le<TAB>`."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Its own options, and the settings once a letter of theirs is typed."""
        found: list[Any] = list(super().shell_complete(ctx, incomplete))
        return found + [_Item(name) for name in settings(incomplete)]


def settings(incomplete: str) -> list[str]:
    """All settings that begin so, as options; none before a letter is typed: there are hundreds."""
    wanted = incomplete.removeprefix("--").replace("_", "-")
    if not incomplete.startswith("--") or not wanted:
        return []
    return [f"--{name}" for name in _names(RunFile, "") if name.startswith(wanted) and "." in name]


def completion_text(words: Sequence[str]) -> str | None:
    """What `--show-completion SHELL` and `--install-completion SHELL` print; None for any other command line.

    Without a shell's name Typer finds out which one it runs in.
    """
    if len(words) != 2 or words[1] not in _SHELLS:
        return None
    if words[0] == "--show-completion":
        return str(_script(prog_name=_PROGRAM, complete_var=_VARIABLE, shell=words[1]))
    if words[0] == "--install-completion":
        shell, path = _install(shell=words[1], prog_name=_PROGRAM, complete_var=_VARIABLE)
        return f"completion for {shell} is in {path}; it works in the next shell"
    return None


def _names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for key, field in model.model_fields.items():
        name = prefix + key.replace("_", "-")
        table = _table(field.annotation)
        if table is None:
            yield name
        else:
            yield from _names(table, f"{name}.")


def _table(annotation: object) -> type[BaseModel] | None:
    """The model of a table, also of one that may be absent."""
    for one in (annotation, *typing.get_args(annotation)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            is_list = typing.get_origin(annotation) in (tuple, list, dict)
            return None if is_list else one
    return None
