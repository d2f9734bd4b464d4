"""`[model.make]`: the tiny model of random weights that a run makes for itself when no `model.path` is given."""

import dataclasses
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.config.tables import MakeTable
from headrace.model.tiny_models import CHAT_TEMPLATE, Shape, bpe_tokenizer, character_tokenizer, read_texts, write_model
from headrace.wire.errors import DataError
from headrace.wire.rundir import atomic


def make_model_of(resolved: Resolved, *, goes_on: bool) -> None:
    """Makes the model of a settled config that asks for one, unless the run that goes on has it. Raises DataError."""
    table, folder = resolved.to_make, resolved.config.model.path
    if table is not None and not (goes_on and folder.is_dir()):
        make_model(table, folder)


def make_model(table: MakeTable, folder: Path) -> None:
    """Writes the folder whole or not at all; the same table gives the same bits. Raises DataError for bad text."""
    if table.kind == "characters":
        tokenizer, template = character_tokenizer(table.characters), ""
    else:
        texts = read_texts(table.text, table.columns)
        if not any(texts):
            raise DataError(f"{table.text}: there is no text to learn from")
        tokenizer = bpe_tokenizer(iter(texts), vocab_size=table.vocab_size)
        template = table.chat_template or CHAT_TEMPLATE
    sizes = {field.name: getattr(table, field.name) for field in dataclasses.fields(Shape)}
    # The table makes it again.
    with atomic.replaced_folder(folder, durable=False) as aside:
        write_model(aside, tokenizer, Shape(**sizes), seed=table.seed, chat_template=template)
