"""Damage to the append-only log of an embedded broker."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

_LONG = 100
"""Bytes; only messages are longer."""


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def flip_commands(folder: Path) -> None:
    """The marks between which the server reads: it refuses the log."""
    log = newest(folder)
    content = bytearray(log.read_bytes())
    places = [at for at in range(len(content) // 3, len(content) - 1) if content[at : at + 2] == b"\n*"]
    for at in random.Random(0).sample(places, 6):
        content[at + 1] ^= 0x40
    log.write_bytes(content)


def flip_messages(folder: Path) -> None:
    """One bit of each message: the server reads them as if nothing had happened."""
    log = newest(folder)
    content = bytearray(log.read_bytes())
    draw = random.Random(0)
    messages = list(_long_strings(bytes(content)))
    assert messages, "no message is in the log"
    for begin, end in messages:
        content[draw.randrange(begin, end)] ^= 1 << draw.randrange(8)
    log.write_bytes(content)


def newest(folder: Path) -> Path:
    """The file that the server appends to."""
    return max((folder / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)


def _long_strings(content: bytes) -> Iterator[tuple[int, int]]:
    """Where the long strings of a log of the Redis protocol lie: `$LENGTH`, then so many bytes, in each command."""
    at = 0
    while at < len(content):
        line = content.index(b"\r\n", at)
        mark, number = content[at : at + 1], int(content[at + 1 : line])
        at = line + 2
        if mark == b"$":
            if number >= _LONG:
                yield at, at + number
            at += number + 2
