"""Selects the held-out rows from seed and content alone, so that reordering the file changes nothing. Pure."""

import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

from headrace.wire.errors import DataError

T = TypeVar("T")


def hold_out(rows: Sequence[T], prompts: Sequence[str], *, size: int, seed: int) -> tuple[list[T], list[T], int]:
    """Returns held-out rows (one per prompt), training rows, and the number dropped because their prompt is held out.

    `prompts` has the digest of each row's prompt. Raises DataError if nothing would be left to train on.
    """
    first: dict[str, int] = {}
    for index, prompt in enumerate(prompts):
        first.setdefault(prompt, index)
    if size >= len(first):
        raise DataError(f"data.eval_size = {size} leaves nothing to train on: there are {len(first)} different prompts")
    chosen = set(sorted(first, key=lambda prompt: hashlib.sha256(f"{seed}|{prompt}".encode()).digest())[:size])
    held_out = [rows[index] for prompt, index in first.items() if prompt in chosen]
    train = [row for prompt, row in zip(prompts, rows, strict=True) if prompt not in chosen]
    return held_out, train, len(rows) - len(held_out) - len(train)


def digest(content: object) -> str:
    """The first sixteen hex digits of the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
