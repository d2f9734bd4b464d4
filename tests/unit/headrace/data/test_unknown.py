"""Prompts that the tokenizer cannot read are refused; a few unknown tokens are counted."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headrace.config.data import DataTable
from headrace.data.prepare import LengthLimits, PreparedData, prepare
from headrace.data.unknown import unknown_id
from headrace.model.tiny_models import Shape, bpe_tokenizer, character_tokenizer, write_model
from headrace.wire.errors import DataError

LIMITS = LengthLimits(max_prompt_tokens=50, vocab_size=1000, seed=0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path / "model", character_tokenizer("0123"), Shape(layers=1, hidden=8), seed=0)
    return tmp_path / "model"


def prompts(folder: Path, model: Path, *texts: str, **table: float) -> PreparedData:
    path = folder / "p.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return prepare(DataTable(path=str(path), max_unknown_share=table.get("share", 0.05)), model, LIMITS, folder)


def test_prompts_of_unknown_text_are_refused_with_row_and_key(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"p.jsonl:2: .* does not know 50.0% of .* max_unknown_share = 0.05"):
        prompts(tmp_path, model, "0123", "7+8=")
    assert not (tmp_path / "prompts.parquet").exists()
    assert prompts(tmp_path, model, "0123", "7+8=", share=0.5).unknown_share == 0.5


def fast(model: models.Model, **special: str) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def test_the_unknown_token_is_the_encoders_own() -> None:
    words = {"<unk>": 0, "a": 1}
    assert unknown_id(fast(models.WordLevel(words, unk_token="<unk>"))) == 0
    assert unknown_id(fast(models.Unigram([("a", -1.0), ("<unk>", 0.0)], unk_id=1))) == 1
    # GPT-2's kin: byte-level BPE knows every text, and its `unk_token` is the end of one.
    gpt2 = PreTrainedTokenizerFast(
        tokenizer_object=bpe_tokenizer(iter(["abc"]), vocab_size=300), unk_token="<end>", eos_token="<end>"
    )
    assert unknown_id(gpt2) is None
