"""Tables of plain text."""

from collections.abc import Collection, Iterable, Sequence

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace.inspect.terminal import SafeConsole, wrapping

_WIDEST = 1000


def plain_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, folds: Collection[str] = (), right: Collection[str] = ()
) -> Table:
    """A table whose columns `folds` may be narrower than their cells; those of numbers are aligned to the `right`."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(
            Text(title),
            no_wrap=title not in folds,
            overflow="fold" if title in folds else "ellipsis",
            justify="right" if title in right else "left",
        )
    for row in rows:
        table.add_row(*map(Text, row))  # As text: brackets in it are not markup.
    return table


def show_table(console: Console, table: RenderableType) -> None:
    """Prints a table as wide as the terminal; elsewhere as wide as needed, so that nothing is cut off."""
    if console.is_terminal:
        wrapping(console).print(table)
        return
    wide = console.options.update(max_width=_WIDEST)
    width = max(console.width, Measurement.get(console, wide, table).maximum)
    SafeConsole(file=console.file, width=width, highlight=False).print(table)
