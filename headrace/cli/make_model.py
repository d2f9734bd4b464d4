"""The verb `make-model`."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.model.tiny_models import make_text_model


def make_model(
    tokenizer_from: Annotated[Path, typer.Option("--tokenizer-from", help="Data or text to learn the BPE from.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    columns: Annotated[str, typer.Option("--columns", help="Its columns, separated by commas.")] = "",
    vocab_size: Annotated[int, typer.Option("--vocab-size", min=300)] = 1024,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    json: Json = False,
) -> None:
    with reported_errors(json=json, place=out) as output:
        names = tuple(filter(None, (name.strip() for name in columns.split(","))))
        make_text_model(tokenizer_from, names, out, vocab_size=vocab_size, seed=seed)
        output.say(f"model: {out}")
        output.in_json({"model": str(out)})
