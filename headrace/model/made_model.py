"""`[model.make]`: the tiny model of random weights that a run makes for itself when no `model.path` is given."""

import dataclasses
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.config.tables import MakeTable
from headrace.model.tiny_models import Shape, bpe_tokenizer, character_tokenizer, read_texts, write_model
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths


def settle_path(resolved: Resolved, run_dir: Path) -> tuple[Resolved, MakeTable | None]:
    """Sets `model.path` to the folder to make, and returns the table to make it from; None if a path was given.

    Raises ConfigError for a table that cannot be made.
    """
    config = resolved.config
    table = config.model.make
    if table is None or ("model", "path") in resolved.layer:
        return resolved, None
    if table.kind == "text" and not table.text.is_file():
        place = resolved.place("model", "make", "text")
        raise ConfigError(f"{place}: there is no file {table.text}; a tokenizer of the kind text is learned from one")
    model = config.model.model_copy(update={"path": RunPaths(run_dir).model})
    return dataclasses.replace(resolved, config=config.model_copy(update={"model": model})), table


def make_model(table: MakeTable, folder: Path) -> None:
    """Writes the folder whole or not at all; the same table gives the same bits. Raises DataError for bad text."""
    if table.kind == "characters":
        tokenizer = character_tokenizer(table.characters)
    else:
        texts = read_texts(table.text, table.columns)
        if not any(texts):
            raise DataError(f"{table.text}: there is no text to learn from")
        tokenizer = bpe_tokenizer(iter(texts), vocab_size=table.vocab_size)
    sizes = {field.name: getattr(table, field.name) for field in dataclasses.fields(Shape)}
    # The table makes it again.
    with atomic.replaced_folder(folder, durable=False) as aside:
        write_model(aside, tokenizer, Shape(**sizes), seed=table.seed, chat_template=table.chat_template)
