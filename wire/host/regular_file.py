"""Opens files of run directories for reading: a pipe or a device, which may never end, is refused at once.

The owner of a folder that is only looked at, such as a run beside this one, could hold its readers up for ever.
"""

import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

from pydantic import JsonValue

from headrace.wire.errors import DataError


class IrregularFileError(DataError, OSError):
    """A pipe, a device, a socket or a folder in the place of a file. The message names its path."""


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading, and waits for no other process. Raises IrregularFileError, or another OSError."""
    # Before it is opened: to open a device may do something.
    check_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """The content of a file. Raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_regular_text(path: Path) -> str:
    """The content of a file in UTF-8. Raises as `open_regular`, and ValueError for other bytes."""
    return read_regular(path).decode("utf-8")


def read_object(path: Path) -> dict[str, JsonValue]:
    """The JSON object in a file; empty where there is none, or it cannot be read."""
    try:
        found: JsonValue = json.loads(read_regular_text(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def check_regular(path: Path) -> None:
    """For libraries that open files themselves. Raises IrregularFileError, or another OSError."""
    _check(path, path.stat())


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise IrregularFileError(f"{path}: is no regular file, and is not read: move it away")
