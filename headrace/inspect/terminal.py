"""Prints text of models, users' code and files without what a terminal would obey: control sequences are shown."""

import copy
import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    r"""The text with each control character of C0 (but tab and newline) and C1 as `\x1b`. Pure."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def wrapping(console: Console) -> Console:
    """The same console for tables: long cells are wrapped, where lines of text are left to the terminal to wrap."""
    found = copy.copy(console)
    found.soft_wrap = False
    return found


class SafeConsole(Console):
    """A console whose only control sequences are its own, for colours and cursor."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders as `Console.render`; text, in tables too, is printable before its cells are laid out."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)
