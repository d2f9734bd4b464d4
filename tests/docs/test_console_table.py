"""Every line of a ```console block is run, here or elsewhere, or stands in a table with the reason why it is not."""

from collections import Counter

from tests.docs import console_table
from tests.docs.console import Case, console_lines
from tests.docs.pages import ROOT


def cases() -> list[Case]:
    """Cases of all tables."""
    found = []
    for table in vars(console_table).values():
        found += [one for one in (table if isinstance(table, tuple) else (table,)) if isinstance(one, Case)]
    return found


def listed() -> Counter[str]:
    return Counter([*(case.line for case in cases()), *console_table.ELSEWHERE, *console_table.NOT_HERE])


def test_every_line_is_run_or_listed_with_a_reason() -> None:
    new = [(line.page, line.text) for line in console_lines() if line.text not in listed()]
    assert not new, "put these into tests/docs/console_table.py"


def test_the_tables_have_no_line_that_no_page_shows() -> None:
    shown = {line.text for line in console_lines()}
    assert not [line for line in listed() if line not in shown]
    assert not [line for line, count in listed().items() if count > 1], "in two tables"


def test_what_others_run_they_run() -> None:
    for line, (file, text) in console_table.ELSEWHERE.items():
        assert text in (ROOT / file).read_text(), f"{file} does not run {line!r} any more"


def test_every_substitution_is_of_something_that_is_shown() -> None:
    shown = "\n".join(line.text for line in console_lines())
    for word in console_table.WORDS:
        assert word.replace("runs/mine", "RUN_DIR") in shown, word
    for case in cases():
        for word, _ in case.replaced:
            assert word in case.line, f"{case.line}: {word}"


def test_placeholders_are_replaced_as_whole_words() -> None:
    case = Case(
        line="headrace status RUN_DIR --x MY_RUN_DIR [RUN_DIR]", says="", more="--y", replaced=(("--x", "--z"),)
    )
    assert case.command(console_table.WORDS) == "headrace status runs/mine --z MY_RUN_DIR runs/mine --y"
