"""`[model.make]`: a run's own tiny model."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from headrace.config.resolve import Resolved, resolve, settle
from headrace.config.tables import MakeTable
from headrace.model.made_model import make_model
from headrace.model.model_check import check_model
from headrace.model.tiny_models import read_texts
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rendering.chat_template import ChatTemplate
from headrace.wire.rendering.tokenizers import load_tokenizer

DATA = '[data]\npath = "x.jsonl"\n'


def resolved(folder: Path, make: str, *arguments: str) -> Resolved:
    (folder / "run.toml").write_text(f"{DATA}[model.make]\n{make}\n")
    return resolve(folder / "run.toml", arguments=arguments)


def test_the_model_goes_into_the_run_directory_unless_a_path_is_given(tmp_path: Path) -> None:
    settled = settle(resolved(tmp_path, "layers = 1"), tmp_path / "run")
    assert settled.to_make is not None and settled.to_make.layers == 1
    assert settled.config.model.path == tmp_path / "run" / "model"
    given = resolved(tmp_path, "", "--model.path=elsewhere")
    assert given.to_make is None and settle(given, tmp_path / "run").config.model.path == given.config.model.path


def test_make_model_writes_a_valid_and_reproducible_model_folder(tmp_path: Path) -> None:
    table = MakeTable(
        characters="ab", hidden=16, intermediate=16, layers=1, heads=2, kv_heads=1, head_dim=8, context=64
    )
    for name in ("a", "b", "b"):
        make_model(table, tmp_path / name)
    facts = check_model(tmp_path / "a", engine="torch")
    assert (facts.context_length, facts.vocab_size) == (64, 4)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    make_model(table.model_copy(update={"seed": 1}), tmp_path / "c")
    assert (tmp_path / "c" / "model.safetensors").read_bytes() != weights[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_tokenizer_is_learned_from_text_or_from_any_data(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 20)
    pq.write_table(pa.table({"n": [1, 2], "a": ["one", "two"], "b": ["x", "y"]}), tmp_path / "rows.parquet")
    assert read_texts(tmp_path / "rows.parquet", ()) == ["one", "x", "two", "y"]
    assert read_texts(tmp_path / "rows.parquet", ("n",)) == ["1", "2"]
    with pytest.raises(DataError, match=r"rows\.parquet: row 0: 'c' is not one of n, a, b"):
        read_texts(tmp_path / "rows.parquet", ("c",))
    found = resolved(tmp_path, 'kind = "text"\ntext = "text.txt"\nvocab_size = 300')
    table = found.to_make
    assert table is not None and table.text == tmp_path / "text.txt"
    make_model(table, tmp_path / "m")
    assert 258 <= check_model(tmp_path / "m", engine="torch").vocab_size <= 300


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("heads = 4\nkv_heads = 3", "kv_heads = 3 must divide heads = 4"),
        ('characters = "aab"', "must be different ones"),
        ("head_dim = 7", "multiple of 2"),
        ("depth = 3", 'unknown key "depth"'),
        ('kind = "bytes"', "kind"),
    ],
)
def test_a_table_that_makes_no_model_is_refused_with_its_line(tmp_path: Path, make: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolved(tmp_path, make)
    assert reason in str(error.value) and "run.toml:" in str(error.value)


def test_a_chat_template_is_the_tokenizers_and_needs_a_token_for_its_end(tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    text.write_text("user\nhow many?\n")
    own = "{% for m in messages %}{{ m.content }}<end>{% endfor %}"
    make_model(MakeTable(kind="text", text=text, chat_template=own), tmp_path / "own")
    make_model(MakeTable(kind="text", text=text), tmp_path / "model")
    asked = [{"role": "user", "content": "how many?"}]
    assert load_tokenizer(tmp_path / "own").apply_chat_template(asked, tokenize=False) == "how many?<end>"
    tokenizer = load_tokenizer(tmp_path / "model")
    template = ChatTemplate(tokenizer)
    call = {"role": "assistant", "tool_calls": [{"name": "find", "arguments": '{"item": "nut"}'}]}
    said = [*asked, call, {"role": "tool", "content": "7"}]
    assert template.text(said, (), asks=True) == (
        "user\nhow many?<end>"
        'assistant\n<tool_call>{"name": "find", "arguments": {"item": "nut"}}</tool_call><end>tool\n7<end>assistant\n'
    )
    assert not template.unwritten(said, ())
    ids = template.ids(template.text(said, (), asks=False)).tolist()
    assert ids[-1] == tokenizer.eos_token_id and ids.count(tokenizer.eos_token_id) == 3
    with pytest.raises(ValidationError, match='chat_template needs kind = "text"'):
        MakeTable(chat_template=own)
