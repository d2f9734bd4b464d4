"""Values that no setting has are refused in one line with file, key and way out, and none is a traceback."""

from pathlib import Path

import pytest

from tests.unit.headrace.config.test_resolve import GOOD, message

DIGITS = "1" * 5000
LONG = "a" * 5000
DEEP = "[" * 5000 + "]" * 5000
SCORER = '[[reward.scorers]]\nname = "math"\n'
OF_NO_USER = "no user of this machine has that name: write out the folder"
OF_NUL = "it holds a NUL character: remove that"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[run]\nmax_steps = 2024-01-01\n",
            "run.toml:4: [run] max_steps: 2024-01-01 is a date or time, and no setting",
        ),
        ("[run]\nid = 10:00:00\n", "run.toml:4: [run] id: 10:00:00 is a date or time, and no setting is: write it as"),
        (SCORER + "options = {x = 2020-01-01}\n", "[reward] scorers: 2020-01-01 is a date or time, and no setting is"),
        (f"[run]\nmax_steps = {DIGITS}\n", "run.toml:4: a number has too many digits: no setting needs them"),
        (f"[run]\nmax_steps = {DEEP}\n", "run.toml: its tables or lists are nested too deeply: no setting is"),
        (f"[{'.'.join(['a'] * 3000)}]\nx = 1\n", "run.toml: its tables or lists are nested too deeply: no setting is"),
        ('[model]\npath = "~nouser/m"\n', f"run.toml:4: [model] path: '~nouser/m' is no path: {OF_NO_USER}"),
        ('[reward]\npath = "~nouser/m"\n', f"run.toml:4: [reward] path: '~nouser/m' is no path: {OF_NO_USER}"),
        (SCORER + 'options = {key_file = "~nouser/m"}\n', f"options] key_file: '~nouser/m' is no path: {OF_NO_USER}"),
        ('[model]\npath = "a\\u0000b"\n', f"run.toml:4: [model] path: 'a\\x00b' is no path: {OF_NUL}"),
        (SCORER + 'options = {path = "a\\u0000b"}\n', f"[reward.scorers.options] path: 'a\\x00b' is no path: {OF_NUL}"),
        (f'[model]\npath = "/{LONG}"\n', "...' is no path: File name too long: give another path"),
    ],
)
def test_a_value_of_a_file_that_is_no_setting_is_refused(tmp_path: Path, text: str, told: str) -> None:
    said = message(tmp_path, GOOD + text)
    assert told in said and "\n" not in said and len(said) < 500
