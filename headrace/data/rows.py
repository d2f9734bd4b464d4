"""Reads rows from JSONL, JSON, CSV, parquet or a `datasets` id; each row carries the place that an error names."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.config.resolve import DATA_SUFFIXES
from headrace.wire.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_READ = ", ".join(DATA_SUFFIXES)
_CONVERTS = {
    ".gz": "gunzip --keep {name}",
    ".zst": "unzstd {name}",
    ".xlsx": "python -c \"import pandas; pandas.read_excel('{name}').to_csv('{name}.csv', index=False)\"",
    ".arrow": "python -c \"import datasets; datasets.Dataset.from_file('{name}').to_json('{name}.jsonl')\"",
}
"""Suffix -> the line that converts such a file."""
_ERRORS_SHOWN = 5
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_TOO_DEEP = "nested too deeply; flatten it, or write the inner part as text"


@dataclass(frozen=True, slots=True)
class DataRow:
    """One row as it was found."""

    place: str
    """`train.jsonl:17` or `train.parquet: row 16` (rows count from 0, lines from 1)."""
    values: dict[str, object]
    is_columnar: bool = False
    """Whether each object of a column has the keys of all rows, null where a row has none: parquet and `datasets`."""


def read_rows(path: str, *, subset: str, split: str) -> Iterator[DataRow | DataError]:
    """The rows in order; a row that cannot be read comes as an error. Raises DataError if nothing can be read."""
    if not path.endswith(DATA_SUFFIXES) and not Path(path).exists():
        return _dataset(path, subset, split)
    file = Path(path)
    if not file.exists():
        raise DataError(f"{path}: there is no such file")
    if file.is_dir():
        raise DataError(f"{path}: is a folder; give a file ({_READ}), or a `datasets` id")
    if not file.is_file():
        raise DataError(f"{path}: is no regular file: a pipe or a device may never end; write it to a file first")
    if not path.endswith(DATA_SUFFIXES):
        way_out = _CONVERTS.get(file.suffix, "write it as JSON, an object a line").format(name=file.name)
        raise DataError(f"{path}: {file.suffix or 'a file without a suffix'} is not read ({_READ}): {way_out}")
    return {".parquet": _parquet, ".csv": _csv, ".tsv": _csv}.get(file.suffix, _json)(file)


def parse_rows(
    rows: Iterable[DataRow | DataError], parse: Callable[[DataRow], T], *, limit: int = 0
) -> tuple[list[T], list[str]]:
    """Parses the first `limit` rows (0 = all); returns the results, and the errors of rows that failed to parse."""
    parsed: list[T] = []
    errors: list[str] = []
    for row in rows:
        if limit and len(parsed) + len(errors) >= limit:
            break
        try:
            if isinstance(row, DataError):
                raise row
            parsed.append(parse(row))
        except DataError as error:
            errors.append(str(error))
    return parsed, errors


def raise_all(errors: Sequence[str]) -> None:
    """Raises DataError with the first errors, if there are any."""
    if errors:
        more = len(errors) - _ERRORS_SHOWN
        raise DataError("\n".join(errors[:_ERRORS_SHOWN]) + (f"\n... and {more} more" if more > 0 else ""))


def _text_of(file: Path) -> bytes:
    """UTF-8 without a byte order mark. Raises DataError for the encodings that Windows writes beside it."""
    data = file.read_bytes()
    if data.startswith(_UTF16) or b"\0" in data[:2]:
        raise DataError(f"{file.name}: not UTF-8: iconv -f UTF-16 -t UTF-8 {file.name} > {file.stem}-utf8{file.suffix}")
    if data.startswith(b"\x1f\x8b"):
        raise DataError(f"{file.name}: is compressed: gunzip --stdout {file.name} > {file.stem}-whole{file.suffix}")
    return data.removeprefix(_BOM)


def _json(file: Path) -> Iterator[DataRow | DataError]:
    data = _text_of(file)
    if data.lstrip()[:1] == b"[":
        return _json_array(file, data)
    first = data.lstrip().partition(b"\n")[0]
    if first and not _is_json(first) and _is_json(b"[" + re.sub(rb"}\s*{", b"},{", data) + b"]"):
        raise DataError(
            f"{file.name}: holds an object over several lines, where each line must hold one: "
            f"jq --compact-output . {file.name} > {file.stem}-lines.jsonl"
        )
    return _json_lines(file, data)


def _json_array(file: Path, data: bytes) -> Iterator[DataRow | DataError]:
    try:
        rows = json.loads(data)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{file.name}: not valid JSON: {error}") from None
    except ValueError as error:
        raise DataError(f"{file.name}: {_too_long(error)}") from None
    except RecursionError:
        raise DataError(f"{file.name}: {_TOO_DEEP}") from None
    for index, values in enumerate(rows):
        yield _row(f"{file.name}: row {index}", values)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _json_lines(file: Path, data: bytes) -> Iterator[DataRow | DataError]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{file.name}:{number}"
        try:
            values = json.loads(line)
        except UnicodeDecodeError as error:
            yield DataError(f"{place}: not UTF-8: {error.reason} at byte {error.start}")
        except json.JSONDecodeError as error:
            yield DataError(f"{place}: not valid JSON: {error.msg} at column {error.colno}")
        except ValueError as error:
            yield DataError(f"{place}: {_too_long(error)}")
        except RecursionError:
            yield DataError(f"{place}: {_TOO_DEEP}")
        else:
            yield _row(place, values)


def _too_long(error: ValueError) -> str:
    """Python reads no whole number of more digits than its limit; JSON has none."""
    return f"a number is too long ({str(error).partition(';')[0]}): write it as text"


def _row(place: str, values: object) -> DataRow | DataError:
    if not isinstance(values, dict):
        return DataError(f"{place}: must be an object with named columns, not {type(values).__name__}")
    for column, value in values.items():
        if problem := _unwritable(column) or _unwritable(value):
            return DataError(f'{place}: column "{ascii(column)[1:-1]}": {problem}')
    return DataRow(place, values)


def _unwritable(value: object) -> str:
    """Why a value cannot be written again as UTF-8 and JSON; empty if it can."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        return f"half a surrogate pair ({half} at character {error.start}), which is no character; remove or replace it"
    except RecursionError:
        return _TOO_DEEP
    return ""


def _csv(file: Path) -> Iterator[DataRow | DataError]:
    """Every value as the text that it is; one that is empty, and not quoted, is absent."""
    import pyarrow as pa
    from pyarrow import csv

    data = _text_of(file)
    read = csv.ReadOptions(block_size=len(data) + 1)  # A value with line ends must not lie across two blocks.
    parse = csv.ParseOptions(delimiter="\t" if file.suffix == ".tsv" else ",")
    try:
        names = csv.open_csv(pa.BufferReader(data), read, parse).schema.names
        types = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        table = csv.read_csv(pa.BufferReader(data), read, parse, types)
    except pa.ArrowException as error:
        raise DataError(f"{file.name}: not a readable CSV file: {error}") from None
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f'{file.name}: two columns have the name "{twice[0]}": rename one')
    return _table_rows(file, table, False)


def _parquet(file: Path) -> Iterator[DataRow | DataError]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file}: not a readable parquet file: {error}") from None
    return _table_rows(file, table, True)


def _table_rows(file: Path, table: "pa.Table", is_columnar: bool) -> Iterator[DataRow | DataError]:
    rows = enumerate(table.to_pylist())
    return (DataRow(f"{file.name}: row {index}", values, is_columnar) for index, values in rows)


def _dataset(name: str, subset: str, split: str) -> Iterator[DataRow | DataError]:
    from datasets import load_dataset

    try:
        rows = load_dataset(name, subset or None, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name}: there is no such file, and as the id of a dataset it cannot be loaded: {error}"
        ) from None
    return (DataRow(f"{name}[{split}]: row {index}", dict(values), True) for index, values in enumerate(rows))
