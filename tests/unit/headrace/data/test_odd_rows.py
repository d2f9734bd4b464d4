"""Rows that JSON takes and nothing else does, and templates that do not end: one line with file, line and column."""

import gzip
import json
import signal
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.config.data import DataTable
from headrace.data.presets import prompt_of
from headrace.data.render import PromptRenderer
from headrace.data.rows import DataRow, read_rows
from headrace.model.tiny_models import character_tokenizer
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rendering.deadline import template_deadline

DEEP = '{"prompt": "p", "extra": ' + "[" * 5000 + "]" * 5000 + "}"


def rows(tmp_path: Path, *lines: str) -> list[DataRow | DataError]:
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(lines))
    return list(read_rows(str(path), subset="", split=""))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (r'{"prompt": "a\ud800b"}', r'train.jsonl:2: column "prompt": half a surrogate pair (\ud800 at character 1)'),
        (r'{"prompt": "p", "m": [{"content": "\udc00"}]}', r'train.jsonl:2: column "m": half a surrogate pair (\udc00'),
        (r'{"\ud800": "p"}', r'train.jsonl:2: column "\ud800": half a surrogate pair'),
        (DEEP, "train.jsonl:2: nested too deeply"),
    ],
)
def test_a_row_that_cannot_be_stored_is_named_and_other_rows_are_read(tmp_path: Path, line: str, said: str) -> None:
    good = json.dumps({"prompt": "whole: \U0001f600"})
    first, bad, last = rows(tmp_path, good, line, good)
    assert isinstance(first, DataRow) and isinstance(last, DataRow)
    assert isinstance(bad, DataError) and str(bad).startswith(said) and "\n" not in str(bad)
    str(bad).encode()  # It can be printed.


def test_an_endless_loop_is_interrupted_and_the_signal_handler_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.wire.rendering.deadline.TEMPLATE_S", 0.05)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(ConfigError, match=r"has not ended within 0\.05 s: look for a loop"), template_deadline():
        while True:
            pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_template_that_loops_is_an_error_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=character_tokenizer("abc"))
    loops = "".join(f"{{% for x{n} in range(90000) %}}" for n in range(4)) + "{% endfor %}" * 4
    tokenizer.chat_template = loops
    monkeypatch.setattr("headrace.wire.rendering.deadline.TEMPLATE_S", 0.1)
    renderer = PromptRenderer(tokenizer, DataTable(path="train.jsonl", chat_template="always"))
    with pytest.raises(ConfigError, match=r"train\.jsonl:7: .*has not ended within 0\.1 s: look for a loop"):
        renderer.ask("train.jsonl:7", "abc", ())


SUM = json.dumps({"prompt": "1+2=", "answer": "3"}).encode()
READ = {
    "with a byte order mark": b"\xef\xbb\xbf" + SUM + b"\n" + SUM,
    "with lines of Windows": SUM + b"\r\n" + SUM + b"\r\n",
    "with blank lines": SUM + b"\n\n   \n" + SUM + b"\n",
    "without an end of line": SUM + b"\n" + SUM,
    "of a million characters": SUM + b"\n" + json.dumps({"prompt": "1" * 10**6, "answer": "3"}).encode(),
}
"""What is read as two rows."""
REFUSED = {
    b"\x00\x00\x00": "not valid JSON: Expecting value at column 1",
    SUM[:10]: "not valid JSON: Expecting value at column 11",
    '{"prompt": "caf\xe9"}'.encode("latin-1"): "not UTF-8: invalid continuation byte at byte 15",
    b"[1, 2]": "must be an object with named columns, not list",
    b'{"prompt": "1", "answer": ' + b"9" * 5000 + b"}": "a number is too long (Exceeds the limit (4300 digits)",
}
"""Second line -> what is said of it."""


@pytest.mark.parametrize("data", READ.values(), ids=READ)
def test_files_with_marks_blank_lines_and_windows_line_ends_are_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(data)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    for file in (path, link):
        found = list(read_rows(str(file), subset="", split=""))
        assert len(found) == 2 and all(isinstance(one, DataRow) for one in found)


@pytest.mark.parametrize(("line", "said"), REFUSED.items(), ids=list(map(str, range(len(REFUSED)))))
def test_a_line_that_is_not_a_row_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(SUM + b"\n" + line + b"\n" + SUM)
    first, bad, last = read_rows(str(path), subset="", split="")
    assert isinstance(first, DataRow) and isinstance(last, DataRow)
    assert isinstance(bad, DataError) and str(bad).startswith(f"train.jsonl:2: {said}")


ROWS = [{"prompt": "1+1=", "answer": "2"}, {"prompt": 'two\nlines, "quoted"', "answer": "007"}]
CSV = b'prompt,answer\r\n1+1=,2\r\n"two\nlines, ""quoted""",007\r\n'
BOM = b"\xef\xbb\xbf"
SAME = {
    "rows.jsonl": b"\n".join(json.dumps(row).encode() for row in ROWS),
    "rows.json": json.dumps(ROWS, indent=1).encode(),
    "array.jsonl": json.dumps(ROWS, indent=1).encode(),
    "rows.csv": CSV,
    "rows.tsv": CSV.replace(b"prompt,answer", b"prompt\tanswer").replace(b"=,2", b"=\t2").replace(b'",007', b'"\t007'),
}


@pytest.mark.parametrize("mark", [b"", BOM], ids=["plain", "marked"])
@pytest.mark.parametrize("name", SAME)
def test_the_same_rows_are_read_from_every_format(tmp_path: Path, name: str, mark: bytes) -> None:
    (tmp_path / name).write_bytes(mark + SAME[name])
    assert [row.values for row in read_rows(str(tmp_path / name), subset="", split="")] == ROWS  # type: ignore[union-attr]


def test_an_empty_value_of_csv_is_absent_and_a_long_one_whole(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b'prompt,answer\n1,\n2,""\n"' + b"x\n" * 2**20 + b'",3')
    first, second, third = (row.values for row in read_rows(str(tmp_path / "rows.csv"), subset="", split=""))  # type: ignore[union-attr]
    assert (first["answer"], second["answer"], len(str(third["prompt"]))) == (None, "", 2**21)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("rows.jsonl", SAME["rows.jsonl"].decode().encode("utf-16"), "not UTF-8: iconv -f UTF-16"),
        ("rows.json", SAME["rows.json"].decode().encode("utf-16-be"), "not UTF-8: iconv -f UTF-16"),
        ("rows.csv", CSV.decode().encode("utf-16"), "not UTF-8: iconv -f UTF-16"),
        ("rows.jsonl", gzip.compress(SAME["rows.jsonl"], mtime=0), "compressed: gunzip"),
        ("rows.jsonl.gz", b"", "gunzip --keep rows.jsonl.gz"),
        ("rows.xlsx", b"PK", "pandas.read_excel('rows.xlsx')"),
        ("rows.arrow", b"ARROW1", "Dataset.from_file('rows.arrow')"),
        ("rows.txt", b"1+1=", "an object a line"),
        ("row.json", json.dumps(ROWS[0], indent=1).encode(), "an object over several lines"),
        (
            "rows.jsonl",
            b"\n".join(json.dumps(row, indent=1).encode() for row in ROWS),
            "jq --compact-output . rows.jsonl",
        ),
        ("rows.csv", b"prompt,answer\n1\n", "Expected 2 columns, got 1"),
        ("rows.csv", b"prompt,prompt\n1,2\n", 'two columns have the name "prompt"'),
        ("rows.csv", b"", "Empty CSV file"),
        ("rows.parquet", b"PAR1 and no more", "not a readable parquet"),
    ],
)
def test_an_unsupported_file_is_refused_with_the_cause_and_a_way_out(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError) as caught:
        list(read_rows(str(tmp_path / name), subset="", split=""))
    assert name in str(caught.value) and said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("1"), b"x", timedelta(1), [{"a": float("nan")}]])
def test_a_column_that_json_cannot_hold_is_named_and_may_be_left_out(value: object) -> None:
    row = DataRow("p.parquet: row 3", {"prompt": "1", "level": value})
    with pytest.raises(DataError) as caught:
        prompt_of(row, DataTable(path="p"))
    assert str(caught.value).startswith('p.parquet: row 3: column "level": ')
    assert '[data.columns] level = ""' in str(caught.value)
    assert prompt_of(row, DataTable(path="p", columns={"level": ""})).columns == {}
