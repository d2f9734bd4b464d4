"""Rows that JSON takes and nothing else does, and templates that do not end: one line with file, line and column."""

import json
import signal
from pathlib import Path

import pytest

from headrace.config.data import DataTable
from headrace.data.presets import prompt_of
from headrace.data.render import Renderer
from headrace.data.row_deadline import row_deadline
from headrace.data.rows import DataRow, read_rows
from headrace.model.tiny_models import character_tokenizer
from headrace.wire.errors import DataError

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
def test_a_row_that_cannot_be_stored_is_named_and_the_others_are_read(tmp_path: Path, line: str, said: str) -> None:
    good = json.dumps({"prompt": "whole: \U0001f600"})
    first, bad, last = rows(tmp_path, good, line, good)
    assert isinstance(first, DataRow) and isinstance(last, DataRow)
    assert isinstance(bad, DataError) and str(bad).startswith(said) and "\n" not in str(bad)
    str(bad).encode()  # It can be printed.


def test_an_array_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(f"[{DEEP}]")
    with pytest.raises(DataError, match=r"train\.json: nested too deeply"):
        list(read_rows(str(path), subset="", split=""))


def test_a_loop_without_end_is_ended_and_the_signal_is_as_before() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(DataError, match=r"has not ended within 0\.05 s: look for a loop"), row_deadline(0.05):
        while True:
            pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_template_that_loops_is_an_error_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=character_tokenizer("abc"))
    loops = "".join(f"{{% for x{n} in range(90000) %}}" for n in range(4)) + "{% endfor %}" * 4
    tokenizer.chat_template = loops
    monkeypatch.setattr("headrace.data.row_deadline.ROW_S", 0.1)
    renderer = Renderer(tokenizer, DataTable(path="train.jsonl", chat_template="always"))
    prompt = prompt_of(DataRow("train.jsonl:7", {"prompt": "abc"}), DataTable(path="train.jsonl"))
    with pytest.raises(DataError, match=r"train\.jsonl:7: .*has not ended within 0\.1 s: look for a loop"):
        renderer.render([prompt])
