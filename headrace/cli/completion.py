"""Completion in bash, zsh and fish: verbs, options and files by Typer, dotted settings by the schema."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from typer.completion import get_completion_script as _script  # type: ignore[attr-defined]
from typer.completion import install as _install  # type: ignore[attr-defined]
from typer.core import TyperCommand

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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer; an option that is not there is answered with the nearest ones, settings among them."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Click's NoSuchOption, of which Typer has a copy in some versions.
            if option := getattr(error, "option_name", ""):
                from headrace.wire.config.nearest import nearest

                own = [name for one in self.params for name in one.opts if name.startswith("--")]
                names = nearest(option, [*own, *(f"--{name}" for name in _names())])
                vars(error)["possibilities"] = names
            raise

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Its own options, and the settings once a letter of theirs is typed."""
        found: list[Any] = list(super().shell_complete(ctx, incomplete))
        return found + [_Item(name) for name in settings(incomplete)]


def settings(incomplete: str) -> list[str]:
    """All settings that begin so, as options; none before a letter is typed: there are hundreds."""
    wanted = incomplete.removeprefix("--").replace("_", "-")
    if not incomplete.startswith("--") or not wanted:
        return []
    return [f"--{name}" for name in _names() if name.startswith(wanted) and "." in name]


def _names() -> Iterator[str]:
    # The schema is imported where a setting is named: most commands name none.
    from headrace.config.names import setting_names
    from headrace.config.schema import RunFile

    return (name.replace("_", "-") for name in setting_names(RunFile))


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
