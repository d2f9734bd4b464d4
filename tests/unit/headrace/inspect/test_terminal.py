"""What a model, users' code or a file says is shown, and no terminal obeys it."""

import io
import json
import re
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli import generate
from headrace.inspect.results import Summary
from headrace.inspect.screen import show_table
from headrace.inspect.terminal import SafeConsole, printable
from headrace.run.execute import Output
from headrace.wire.contracts import group_id
from tests.unit.headrace.history.test_check import RUN, Forge
from tests.verbs import ended, said

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x1b\\"
HOSTILE = f"{CLIPBOARD}\x9b31m\x07\r\x00\x7f\x85[b]x[/b]"
SHOWN = r"\x1b]52;c;cm0gLXJmIH4=\x1b\\x9b31m"


def controls(text: str) -> set[str]:
    return {one for one in text if unicodedata.category(one) == "Cc"} - {"\n", "\t"}


def test_control_characters_are_shown_and_all_else_is_as_it_was() -> None:
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


def test_a_complaint_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    Output.choose(json=False).complain(HOSTILE)
    Output.choose(json=True).say(HOSTILE)
    Output.choose(json=False).say(HOSTILE)
    shown = capsys.readouterr()
    assert controls(shown.out + shown.err) == set()
    assert shown.err.count(SHOWN) == 2 and shown.out.count(SHOWN) == 1


@pytest.mark.parametrize("name", ["g0", "g0/0"])
def test_a_story_shows_what_a_rollout_says(tmp_path: Path, name: str) -> None:
    Forge(tmp_path).run(steps=1)
    (tmp_path / "config" / "run.toml").write_text(f'[run]\nid = "{RUN}"\n')
    row = {
        "group_id": group_id(RUN, 0), "rollout_index": 0, "prompt": HOSTILE, "completion": HOSTILE, "reward": 1.0,
        "components": json.dumps({HOSTILE: 1.0}), "reason": HOSTILE, "spans": "[]", "advantage": 0.5, "tokens": 2,
        "min_version": 0, "max_version": 0, "finish_reason": HOSTILE, "replica_id": HOSTILE, "sample_id": HOSTILE,
    }  # fmt: skip
    (tmp_path / "rollouts").mkdir()
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "rollouts" / "step-000001.parquet")
    shown = said("explain", name, tmp_path)
    assert controls(shown) == set() and SHOWN in shown


def test_a_problem_of_the_check_shows_the_name_that_it_quotes(tmp_path: Path) -> None:
    Forge(tmp_path).run(steps=1)
    folder = tmp_path / "checkpoints" / "step-000001"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"sha256": {"state.json": "x", f"../{CLIPBOARD}": "y"}}))
    found = ended("check", tmp_path)
    assert found.status == 1 and controls(found.out + found.complaint) == set()


def test_a_summary_in_json_escapes_them() -> None:
    line = Summary(
        eval_before=None, eval_after=None, steps=0, rollouts=0, seconds=0.0, logprob_gap_max=None,
        versions_committed={HOSTILE: 1}, groups_dropped={HOSTILE: 1}, run_dir=HOSTILE,
    ).as_json()  # fmt: skip
    assert controls(line) == set()


@pytest.mark.parametrize("is_live", [False, True])
def test_an_answer_of_a_model_is_printed_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_live: bool
) -> None:
    def answer(*_: object, **__: object) -> dict[str, str]:
        return {"text": HOSTILE}

    # What a model samples cannot be asked for.
    monkeypatch.setattr(generate, "is_alive", lambda _: is_live)
    monkeypatch.setattr(generate, "find_client", lambda *_: None)
    monkeypatch.setattr(generate, "answer_from_checkpoint", answer)
    monkeypatch.setattr(generate, "stream_answer", lambda *_: iter(HOSTILE))
    shown = said("generate", tmp_path, "--prompt", "x")
    assert controls(shown) == set() and SHOWN in shown
