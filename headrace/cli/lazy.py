"""Verbs that are known by name and summary, and imported once they are called or completed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headrace.cli.importing import importing


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb, or a group of verbs."""

    name: str
    target: str
    """Module of `headrace.cli` and name in it: of a function, or of the `Typer` of a group."""
    help: str
    """Its first paragraph is the summary in `headrace --help`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of its command, as Typer takes them."""

    @property
    def module(self) -> str:
        """Name of the module that has it."""
        return f"headrace.cli.{self.target.partition(':')[0]}"

    def load(self) -> Any:
        """Imports the verb's module and returns its command."""
        with importing():
            found = getattr(import_module(self.module), self.target.partition(":")[2])
        app = typer.Typer()
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name, help=self.help)
        else:
            app.command(self.name, help=self.help, **self.options)(found)
        return typer.main.get_group(app).commands[self.name]


class LazyGroup(TyperGroup):
    """Lists its verbs by their summaries alone; a verb's module is imported when the verb is called or completed."""

    verbs: Sequence[Verb] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update({one.name: TyperCommand(one.name, help=one.help) for one in self.verbs})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As Typer, with the command itself in place of its summary."""
        name, command, rest = super().resolve_command(ctx, args)
        loaded = next((one.load() for one in self.verbs if one.name == name), command)
        return name, loaded, rest
