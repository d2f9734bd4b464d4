"""What scorers and people get to read of a completion."""

from pathlib import Path

import numpy as np
from transformers import AutoTokenizer

from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.services.rollout import metrics
from headrace.services.rollout.engines.protocol import Completion
from headrace.services.rollout.text import TextDecoder
from headrace.wire.contracts import FinishReason


def test_special_tokens_reach_scorers_but_for_the_stop_token_and_padding(tmp_path: Path) -> None:
    shape = Shape(context=64, layers=1, hidden=32, intermediate=32, heads=2, kv_heads=1, head_dim=16)
    write_model(tmp_path, character_tokenizer("0123456789+="), shape, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    tokenizer.save_pretrained(tmp_path)
    ids = [*tokenizer("<think>1+1=2</think>").input_ids, tokenizer.pad_token_id, *tokenizer("2").input_ids]
    before = metrics.PADDING._value.get()
    decoder = TextDecoder(tmp_path)

    def text(ids: list[int], reason: FinishReason) -> str:
        logprobs = np.zeros(len(ids), np.float32)
        return decoder.decode(
            Completion(token_ids=np.array(ids, np.int32), logprobs=logprobs, finish_reason=reason, spans=())
        )

    assert text([*ids, tokenizer.eos_token_id], FinishReason.STOP) == "<think>1+1=2</think>2"
    assert text(ids, FinishReason.LENGTH) == "<think>1+1=2</think>2"
    assert metrics.PADDING._value.get() == before + 2
