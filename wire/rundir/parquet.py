"""Parquet files whose columns are declared by name and Arrow type. Readers take those of them that a file has.

pyarrow is imported where it is needed: the declarations are read by processes without it.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.wire.errors import DataError
from headrace.wire.host.regular_file import check_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_LIST = re.compile(r"list<(\w+)>")


def checked(names: tuple[str, ...], types: Mapping[str, str], what: str) -> tuple[str, ...]:
    """The names, each of which must be a declared column. Raises ValueError otherwise."""
    unknown = set(names).difference(types)
    if unknown:
        raise ValueError(f"{what} have no column {min(unknown)!r}")
    return names


def schema(types: Mapping[str, str]) -> "pa.Schema":
    """The schema of a new file: column -> `string`, `int32`, `list<int32>` and the like."""
    import pyarrow as pa

    def kind(name: str) -> "pa.DataType":
        inner = _LIST.fullmatch(name)
        return pa.list_(kind(inner[1])) if inner else pa.type_for_alias(name)

    return pa.schema([(name, kind(text)) for name, text in types.items()])


def read(path: Path, names: Sequence[str], rows: tuple[int, int] | None = None) -> "pa.Table":
    """Reads those of the columns that exist; with `rows` only [first, last). Raises DataError, also for a bad page."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_regular(path)
        # `read_table` takes twice as long for small files.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            there = [name for name in names if name in file.schema_arrow.names]
            if rows is None:
                return file.read(columns=there, use_threads=False)
            groups, first = _row_groups(file.metadata, rows)
            table = file.read_row_groups(groups, columns=there, use_threads=False)
            return table.slice(rows[0] - first, rows[1] - rows[0])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet: {error}") from error


def _row_groups(metadata: "pq.FileMetaData", rows: tuple[int, int]) -> tuple[list[int], int]:
    """The row groups that contain the rows, and the index of the first row of the first of them."""
    found: list[int] = []
    start = first = 0
    for number in range(metadata.num_row_groups):
        end = start + metadata.row_group(number).num_rows
        if start < rows[1] and end > rows[0]:
            first = start if not found else first
            found.append(number)
        start = end
    return found, first
