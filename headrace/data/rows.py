"""Reads rows from JSONL, JSON, parquet or a `datasets` id; each row carries the place that an error names."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.config.resolve import DATA_SUFFIXES
from headrace.wire.errors import DataError

T = TypeVar("T")
_ERRORS_SHOWN = 5
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
        raise DataError(f"{path}: is a folder; give a .jsonl, .json or .parquet file, or a `datasets` id")
    if not file.is_file():
        raise DataError(f"{path}: is no regular file: a pipe or a device may never end; write it to a file first")
    if file.suffix == ".parquet":
        return _parquet(file)
    return _json(file)


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


def _json(file: Path) -> Iterator[DataRow | DataError]:
    data = file.read_bytes()
    if file.suffix == ".json" and data.lstrip()[:1] == b"[":
        return _json_array(file, data)
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


def _parquet(file: Path) -> Iterator[DataRow | DataError]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file}: not a readable parquet file: {error}") from None
    return (DataRow(f"{file.name}: row {index}", values, True) for index, values in enumerate(table.to_pylist()))


def _dataset(name: str, subset: str, split: str) -> Iterator[DataRow | DataError]:
    from datasets import load_dataset

    try:
        rows = load_dataset(name, subset or None, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name}: there is no such file, and as the id of a dataset it cannot be loaded: {error}"
        ) from None
    return (DataRow(f"{name}[{split}]: row {index}", dict(values), True) for index, values in enumerate(rows))
