"""`RUN/prompts.parquet` and `RUN/eval.parquet`: tokenized prompts, one row each; columns, writer, reader."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.wire.rundir import atomic, parquet

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
COLUMNS: Mapping[str, str] = {
    "sample_id": "string",
    "token_ids": "list<int32>",
    "text": "string",
    "messages": "string",  # JSON, null without a chat template; older files lack it
    "columns": "string",  # JSON: the user's columns, for the scorers
    "environment": "string",  # JSON: name, digest and task; null where the prompt is completed; older files lack it
    "set": "string",  # name of its evaluation set; null in prompts.parquet; older files lack it
}
"""Column -> Arrow type, in the order of the file."""


def of_sets(
    sets: Mapping[str, Sequence[T]], rows: Callable[[Sequence[T]], Iterable[Mapping[str, object]]]
) -> Iterator[dict[str, object]]:
    """The `rows` of `eval.parquet`, one evaluation set after another."""
    for name, some in sets.items():
        yield from ({**row, "set": name} for row in rows(some))


def write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Writes the file; durable, because the journal's groups are numbered by its rows. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows), schema=parquet.schema(COLUMNS))
    with atomic.replaced_file(path, durable=True) as aside:
        pq.write_table(table, aside, write_page_checksum=True)


def read(path: Path, *names: str) -> "pa.Table":
    """Reads those of the columns that the file has. Raises DataError."""
    return parquet.read(path, parquet.checked(names, COLUMNS, "prompts"))
