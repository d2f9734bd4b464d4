"""What a model, users' code or a file says is shown, and no terminal obeys it."""

import io
import re
import unicodedata

import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.inspect.output import Output
from headrace.inspect.tables import show_table
from headrace.inspect.terminal import SafeConsole, printable

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x1b\\"
HOSTILE = f"{CLIPBOARD}\x9b31m\x07\r\x00\x7f\x85[b]x[/b]"
SHOWN = r"\x1b]52;c;cm0gLXJmIH4=\x1b\\x9b31m"


def controls(text: str) -> set[str]:
    return {one for one in text if unicodedata.category(one) == "Cc"} - {"\n", "\t"}


def test_control_characters_are_escaped_and_other_text_is_unchanged() -> None:
    assert printable("a\tb\nc é 日 \\x1b") == "a\tb\nc é 日 \\x1b"
    assert printable("\x1b[2J\r\x00\x7f\x9b") == r"\x1b[2J\x0d\x00\x7f\x9b"
    every = "".join(map(chr, range(0x110000)))
    assert controls(printable(every)) == set()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_lines_tables_and_live_tables_have_no_control_sequence_of_their_content(is_terminal: bool) -> None:
    def text_of(of: str) -> str:
        file = io.StringIO()
        console = SafeConsole(file=file, force_terminal=is_terminal, width=300, soft_wrap=True, highlight=False)
        Output(console, json=False).say(of)
        table = Table(box=None)
        table.add_column(Text(of))
        table.add_row(Text(of), of)
        show_table(console, table)
        with Live(console=console, auto_refresh=False) as live:
            live.update(table, refresh=True)
        return file.getvalue()

    shown = text_of(HOSTILE)
    assert shown.startswith(SHOWN) and CLIPBOARD not in shown
    # Those of the console itself set colours and move the cursor.
    assert controls(re.sub(r"\r?\x1b\[[?\d;]*[A-Za-z]", "", shown)) == set()


def test_terminal_output_has_no_raw_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    Output.choose(json=False).complain(HOSTILE)
    Output.choose(json=True).say(HOSTILE)
    Output.choose(json=False).say(HOSTILE)
    shown = capsys.readouterr()
    assert controls(shown.out + shown.err) == set()
    assert shown.err.count(SHOWN) == 2 and shown.out.count(SHOWN) == 1
