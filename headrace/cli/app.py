"""The verbs of `headrace`. Settings are given as dotted options (`--trainer.learning-rate 1e-6`) on any of them."""

import signal
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from headrace.cli.completion import completion_text
from headrace.cli.verbs import VerbGroup
from headrace.inspect.output import FAILED, FINISHED, Output

app = typer.Typer(
    cls=VerbGroup,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Improves a language model with reinforcement learning, as a set of services.",
    epilog="Any setting can be given as an option: --run.max-steps 50, --trainer.learning-rate 1e-6.",
)


def _print_version(asked: bool) -> None:
    if asked:
        Output.choose(json=False).result(f"headrace {version('headrace')}")
        raise typer.Exit


_Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")]


@app.callback()
def _options(_version: _Version = False) -> None:
    """What stands before the verb."""


def run(arguments: Sequence[str]) -> int:
    """Runs a command line; returns its exit status. The user's mistakes are reported, not raised."""
    signal.signal(signal.SIGTERM, _interrupt)
    words, overrides = split_overrides(arguments)
    if text := completion_text(words):
        Output.choose(json=False).result(text)
        return FINISHED
    command = typer.main.get_command(app)
    try:
        status = command.main(args=words, prog_name="headrace", obj=overrides, standalone_mode=True)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else FAILED
    return status if isinstance(status, int) else FINISHED


def _interrupt(_number: int, _frame: object) -> None:
    """SIGTERM while nothing has been started yet is like Ctrl-C: clean up and go."""
    raise KeyboardInterrupt


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Dotted options and their values apart from the rest, wherever they stand."""
    words: list[str] = []
    overrides: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        if not (name.startswith("--") and "." in name):
            words.append(word)
            continue
        overrides.append(word)
        if not equals and rest and not rest[0].startswith("--"):
            overrides.append(rest.pop(0))
    return words, overrides
