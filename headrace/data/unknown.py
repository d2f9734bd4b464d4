"""Counts tokens that stand for text unknown to the tokenizer, which the model cannot read."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.config.data import DataTable
from headrace.wire.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def unknown_id(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """The token that encoding writes for unknown text; None if there is none, as with byte-level BPE.

    Read from the encoder itself: tokenizers such as GPT-2's have an `unk_token` that is the end of text, which encoding
    never writes.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        found = tokenizer.unk_token_id
        return None if found in (None, tokenizer.eos_token_id, tokenizer.bos_token_id) else int(found)
    model = json.loads(backend.to_str())["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    name = model.get("unk_token")
    number = backend.token_to_id(name) if name else None
    return None if number is None else int(number)


def unknown_share(unknown: int | None, texts: Iterable[tuple[str, Sequence[int]]], table: DataTable) -> float:
    """Share of unknown tokens in (place, token ids). Raises DataError above `data.max_unknown_share`."""
    if unknown is None:
        return 0.0
    count = total = 0
    first = ""
    for place, token_ids in texts:
        found = sum(token == unknown for token in token_ids)
        first = first or (place if found else "")
        count, total = count + found, total + len(token_ids)
    share = count / total if total else 0.0
    if share > table.max_unknown_share:
        raise DataError(
            f"{first}: the tokenizer does not know {share:.1%} of the tokens of {table.path}, and "
            f"[data] max_unknown_share = {table.max_unknown_share:g}; take the model's own tokenizer and template "
            "([model.make] characters, if the model is made), or raise the key"
        )
    return share
