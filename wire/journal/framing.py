"""Framing of a segment: a magic, then records of (length, type, header CRC, payload CRC) and payload.

The header has a checksum of its own, so a damaged length cannot pass for a torn tail. Torn: the file ends within its
last record, or the record's bytes from some sector border of the file on are zeros, as is everything behind them: what
a machine's crash leaves of a write (of one record or several) whose last sectors or pages did not reach the disk. All
else that does not check is damage.
"""

import struct
import zlib
from collections.abc import Iterator

from headrace.wire.errors import HeadraceError

MAGIC = b"HRJRNL01"
_FIELDS = struct.Struct("<IB")
_CHECKS = struct.Struct("<II")
HEADER_BYTES = _FIELDS.size + _CHECKS.size
_SECTOR = 512
"""What a disk writes whole, in bytes; pages of a file are multiples of it."""


class JournalDamagedError(HeadraceError):
    """A segment was altered in a way that no crash explains: a trainer that continued would train on other data."""

    final = True


def frame(kind: int, payload: bytes) -> bytes:
    """One record's bytes; `kind` is 0 to 255."""
    fields = _FIELDS.pack(len(payload), kind)
    return fields + _CHECKS.pack(zlib.crc32(fields), zlib.crc32(payload)) + payload


def unframe(data: bytes, name: str) -> Iterator[tuple[int, bytes, int]]:
    """Yields (kind, payload, end offset) of each whole record; a torn tail is passed over.

    Raises JournalDamagedError, naming `name` and offset, for damage anywhere else.
    """
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data) or not any(data):
            return
        raise JournalDamagedError(f"{name} at offset 0: not a journal segment")
    unwritten = _unwritten_from(data)
    offset = len(MAGIC)
    while len(data) - offset >= HEADER_BYTES:
        header = data[offset : offset + HEADER_BYTES]
        length, kind = _FIELDS.unpack_from(header)
        header_crc, payload_crc = _CHECKS.unpack_from(header, _FIELDS.size)
        if zlib.crc32(header[: _FIELDS.size]) != header_crc:
            if unwritten >= offset + HEADER_BYTES and any(data[offset:]):
                raise JournalDamagedError(f"{name} at offset {offset}: the record's header does not match its checksum")
            return
        end = offset + HEADER_BYTES + length
        if end > len(data):
            return
        payload = data[end - length : end]
        if zlib.crc32(payload) != payload_crc:
            if unwritten < end:
                return
            raise JournalDamagedError(f"{name} at offset {offset}: the record's payload does not match its checksum")
        yield kind, payload, end
        offset = end


def _unwritten_from(data: bytes) -> int:
    """The first sector border from which on there are only zeros: all before it was written."""
    written = len(data.rstrip(b"\0"))
    return -(-written // _SECTOR) * _SECTOR
